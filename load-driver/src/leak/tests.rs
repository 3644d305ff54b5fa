use super::*;

/// A fixed stream of noise in -0.5..0.5.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

const MIB: f64 = 1_048_576.0;

/// Half an hour at a thousand sessions that come and go, 40 kB each, with noise that clings (a random walk that is pulled back) and a leak.
fn half_hour(seed: u64, leak_mib_per_h: f64, crowd: impl Fn(f64) -> f64) -> LeakBook {
    let mut noise = Noise(seed);
    let mut book = LeakBook::new(60.0);
    let mut clinging = 0.0;
    for second in 0..1_800 {
        let at = f64::from(second);
        clinging = clinging * 0.98 + noise.next();
        let active = crowd(at) + 40.0 * noise.next();
        // A cache that fills in the first minutes.
        let cache = 20.0 * (1.0 - (-at / 100.0).exp());
        let rss = 200.0 + cache + active * 0.04 + clinging + leak_mib_per_h * at / 3_600.0;
        let fds = 30.0 + active.round();
        let sample = Sample {
            rss_bytes: Some((rss * MIB) as u64),
            fds: Some(fds as u64 + (leak_mib_per_h * at / 3_600.0) as u64),
            threads: Some(9),
            tasks: Some(active as u64 + (leak_mib_per_h * at / 3_600.0) as u64),
            active: active as u64,
        };
        book.add("backend 0", "boot", at, sample);
    }
    book
}

fn wave(at: f64) -> f64 {
    1_000.0 + 200.0 * (at / 90.0).sin()
}

fn row(book: &LeakBook, what: Leak) -> LeakRow {
    book.rows().into_iter().find(|row| row.what == what).unwrap()
}

#[test]
fn a_planted_leak_is_found_and_sized() {
    let mut outside = 0;
    for seed in 1..40 {
        let book = half_hour(seed, 60.0, wave);
        for what in [Leak::Rss, Leak::Fds, Leak::Tasks] {
            let row = row(&book, what);
            let (low, high) = row.interval_per_h.unwrap();
            assert!(row.grows() && (row.slope_per_h.unwrap() - 60.0).abs() < 20.0, "{seed}: {row:?}");
            outside += u32::from(low > 60.0 || high < 59.0);
        }
        let per_session = row(&book, Leak::Rss).per_session.unwrap();
        assert!((per_session - 0.04).abs() < 0.008, "{per_session}");
    }
    assert!(outside <= 8, "the true slope is outside of {outside} of 78 intervals");
}

/// What was needed once is kept: the later it comes, the more it looks like a slope.
#[test]
fn a_step_is_no_leak_and_a_leak_in_steps_is_one() {
    let found = |rss: &dyn Fn(f64) -> f64| {
        let mut noise = Noise(7);
        let mut book = LeakBook::new(60.0);
        for second in 0..1_800 {
            let at = f64::from(second);
            let sample = Sample { rss_bytes: Some(((rss(at) + 0.3 * noise.next()) * MIB) as u64), active: 1_000, ..Sample::default() };
            book.add("driver", "it", at, sample);
        }
        row(&book, Leak::Rss)
    };
    for step_s in [700.0, 1_000.0, 1_400.0, 1_640.0] {
        let row = found(&|at| 228.0 + if at > step_s { 7.0 } else { 0.0 });
        assert!(!row.grows(), "{step_s}: {row:?}");
    }
    let leaks = found(&|at| 228.0 + 0.5 * (at / 60.0).floor());
    assert!(leaks.grows() && (leaks.slope_per_h.unwrap() - 30.0).abs() < 2.0, "{leaks:?}");
}

#[test]
fn noise_that_clings_is_no_leak() {
    let mut called = 0;
    for seed in 1..=200 {
        let book = half_hour(seed, 0.0, wave);
        called += u32::from(row(&book, Leak::Rss).grows());
        assert!(!row(&book, Leak::Threads).grows());
        let (low, high) = row(&book, Leak::Threads).interval_per_h.unwrap();
        assert!(low.abs() < 1e-6 && high.abs() < 1e-6, "what never moves has a slope of 0: {low} {high}");
    }
    // 2.5 % are in the nature of the interval.
    assert!(called <= 12, "{called} of 200");
}

#[test]
fn a_crowd_that_grows_is_no_leak_and_one_that_grows_with_time_alone_is_not_judged() {
    let steps = |at: f64| if ((at / 300.0) as u64).is_multiple_of(2) { 600.0 + at / 6.0 } else { 900.0 };
    assert!(!row(&half_hour(7, 0.0, steps), Leak::Rss).grows());
    let ramp = row(&half_hour(7, 0.0, |at| 100.0 + at), Leak::Rss);
    assert_eq!(ramp.slope_per_h, None);
    assert!(ramp.reason.contains("went with time"), "{}", ramp.reason);
}

#[test]
fn too_short_is_no_data_and_a_new_process_begins_anew() {
    let mut book = LeakBook::new(0.0);
    assert_eq!(book.worst(Leak::Rss), None);
    for second in 0..20 {
        book.add("driver", "1", f64::from(second), Sample { rss_bytes: Some(1 << 20), active: 1, ..Sample::default() });
    }
    assert_eq!(book.worst(Leak::Rss), None);
    assert!(row(&book, Leak::Rss).reason.contains("too short"));
    assert_eq!(book.worst(Leak::Fds), None, "nobody told");
    // Enough blocks, and too soon: what fills once would look like a leak.
    for second in 20..300_u32 {
        book.add("driver", "2", f64::from(second), Sample { rss_bytes: Some(u64::from(5 + second) << 20), active: 1, ..Sample::default() });
    }
    assert_eq!(book.worst(Leak::Rss), None);
    for second in 300..900 {
        book.add("driver", "3", f64::from(second), Sample { rss_bytes: Some(5 << 20), active: 1, ..Sample::default() });
    }
    let (low, blocks) = book.worst(Leak::Rss).unwrap();
    assert!(low.abs() < 1e-6 && blocks >= MIN_BLOCKS as u64, "the step between two processes is no growth: {low}");
}

#[test]
fn memory_is_bounded() {
    let mut book = LeakBook::new(0.0);
    for second in 0..8 * 3_600 {
        book.add("driver", "1", f64::from(second), Sample { rss_bytes: Some(1 << 20), active: 1, ..Sample::default() });
    }
    let blocks = book.processes["driver"].1[&Leak::Rss].blocks.len();
    assert!((MAX_BLOCKS / 2..=MAX_BLOCKS).contains(&blocks), "{blocks}");
}

#[test]
fn this_process_can_be_looked_at() {
    let sample = look(Process::Own, 3);
    assert!(sample.rss_bytes.is_some_and(|n| n > 100_000) && sample.fds.is_some_and(|n| n > 2) && sample.threads.is_some());
    assert_eq!(look(Process::Other(i32::MAX), 0), Sample::default());
}
