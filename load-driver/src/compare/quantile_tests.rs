use super::*;

/// A run of a process in which good and bad times last: the logarithm of the middle of each second depends on the one before.
struct Process {
    correlation: f64,
    seconds: usize,
    samples: usize,
    /// Of the middle of a second, in the run.
    wander: f64,
    /// What the current run is slower by.
    factor: f64,
    /// A ramp of the load: latency at its end over that at its beginning.
    ramp: f64,
}

const PLAIN: Process = Process { correlation: 0.6, seconds: 60, samples: 12, wander: 0.12, factor: 1.0, ramp: 1.0 };

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (random.random_range(1e-12..1.0), random.random_range(0.0..1.0));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Process {
    fn run(&self, random: &mut ChaCha8Rng, factor: f64) -> Vec<Bins> {
        let mut state = normal(random);
        let second = |at: usize| {
            state = self.correlation * state + (1.0 - self.correlation.powi(2)).sqrt() * normal(random);
            let middle = 300_000.0 * factor * self.ramp.powf(at as f64 / self.seconds as f64) * (state * self.wander).exp();
            let mut bins = std::collections::BTreeMap::new();
            for _ in 0..self.samples {
                // To half a per cent: fewer values are faster to count.
                let value = middle * (0.3 * normal(random)).exp();
                *bins.entry(((value.ln() * 200.0).round() / 200.0).exp() as u64).or_insert(0) += 1;
            }
            bins.into_iter().collect()
        };
        (0..self.seconds).map(second).collect()
    }

    /// Share of pairs of runs that differ at 5 %: by this module, by this module and by more than 5 %, and by a test that takes seconds for
    /// independent; and of those that cannot be judged.
    fn alarms(&self, quantile: f64, pairs: u64) -> [f64; 4] {
        let (mut alarms, mut relevant, mut naive, mut silent) = (0, 0, 0, 0);
        for pair in 0..pairs {
            let mut random = ChaCha8Rng::seed_from_u64(1_000 + pair);
            let (a, b) = (self.run(&mut random, 1.0), self.run(&mut random, self.factor));
            match compare(&a, &b, &[quantile], pair)[0].difference {
                Ok(difference) => {
                    let alarm = difference.p() < 0.05;
                    alarms += u32::from(alarm);
                    relevant += u32::from(alarm && difference.change(0.05).0.abs() > 0.05);
                }
                Err(_) => silent += 1,
            }
            naive += u32::from(independent(&a, &b) < 0.05);
        }
        [alarms, relevant, naive, silent].map(|n| f64::from(n) / pairs as f64)
    }
}

/// Welch's test on the medians of seconds.
fn independent(a: &[Bins], b: &[Bins]) -> f64 {
    let medians = |run: &[Bins]| run.iter().map(|bins| (bins[bins.len() / 2].0 as f64).ln()).collect::<Vec<_>>();
    let of = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (of(&medians(a)), of(&medians(b)));
    stats::t_two_sided((mean_b - mean_a) / (error_a + error_b).sqrt(), 100.0)
}

/// Two runs of one process: at 5 %, about 5 % of them differ. Where good and bad times last for a tenth of the run, under as much fast noise, it is some
/// more, and a test that takes seconds for independent calls noise a regression in every second pair.
#[test]
fn noise_is_no_difference() {
    let process = |correlation| Process { correlation, ..PLAIN };
    for (correlation, quantile, at_most, naive_at_least) in
        [(0.0, 0.5, 0.08, 0.0), (0.6, 0.5, 0.08, 0.15), (0.6, 0.95, 0.08, 0.15), (0.85, 0.5, 0.16, 0.35)]
    {
        let [alarms, relevant, naive, silent] = process(correlation).alarms(quantile, 200);
        println!(
            "correlation {correlation}, {quantile}: {alarms:.3} differ, {relevant:.3} by more than 5 %; {naive:.3} by the plain test; {silent:.3} not judged"
        );
        assert!(alarms <= at_most, "{correlation}: {alarms}");
        assert!(naive >= naive_at_least, "{correlation}: {naive}");
    }
}

/// A shift that is there is found.
#[test]
fn a_shift_is_found() {
    for (factor, quantile, at_least) in [(1.15, 0.5, 0.95), (1.2, 0.95, 0.9), (0.87, 0.5, 0.95)] {
        let [found, ..] = Process { correlation: 0.3, seconds: 120, factor, ..PLAIN }.alarms(quantile, 40);
        println!("times {factor} at {quantile}: {found:.2} found");
        assert!(found >= at_least, "{factor} {quantile}: {found}");
    }
}

/// What a ramp does to both runs is no error of either: seconds are pairs.
#[test]
fn a_ramp_of_the_load_costs_no_power() {
    let ramp = Process { correlation: 0.3, seconds: 120, factor: 1.2, ramp: 4.0, ..PLAIN };
    let [found, _, _, silent] = ramp.alarms(0.5, 40);
    let [alarms, ..] = Process { factor: 1.0, ..ramp }.alarms(0.5, 150);
    println!("ramp: {found:.2} found, {silent:.2} not judged, {alarms:.3} false");
    assert!(found >= 0.85 && alarms <= 0.08, "{found} {alarms}");
}

#[test]
fn too_little_is_said_and_not_guessed() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let short = Process { seconds: 8, samples: 100, ..PLAIN };
    let (a, b) = (short.run(&mut random, 1.0), short.run(&mut random, 2.0));
    let of = |a: &[Bins], b: &[Bins], q: f64| compare(a, b, &[q], 1)[0].difference;
    assert_eq!(of(&a, &b, 0.5), Err(TooLittle::Intervals(8)));
    assert_eq!(of(&a, &b, 0.99), Err(TooLittle::Samples(800, 1_000)));
    assert_eq!(of(&[], &[], 0.5), Err(TooLittle::Samples(0, 20)));
    let drifting = Process { correlation: 0.97, samples: 50, wander: 0.5, ..PLAIN };
    let (a, b) = (drifting.run(&mut random, 1.0), drifting.run(&mut random, 1.0));
    assert!(matches!(of(&a, &b, 0.5), Err(TooLittle::Independent(_))));
}

#[test]
fn figures_by_hand() {
    let runs: [Vec<Bins>; 2] = [100, 125].map(|value| (0..20).map(|_| vec![(value, 5), (1_000, 1)]).collect());
    let compared = compare(&runs[0], &runs[1], &[0.5], 1)[0];
    assert!((compared.baseline - 100.0).abs() < 1e-9 && (compared.current - 125.0).abs() < 1e-9);
    let difference = compared.difference.unwrap();
    let (change, (low, high)) = difference.change(0.05);
    assert!((change - 0.25).abs() < 1e-9 && (low - 0.25).abs() < 1e-9 && (high - 0.25).abs() < 1e-9, "nothing varies, nothing is unsure");
    assert!(difference.p() < 1e-12);
    let same = compare(&runs[0], &runs[0], &[0.5], 1)[0].difference.unwrap();
    assert!(same.p() > 0.99 && same.change(0.05).0.abs() < 1e-12);
}

/// Eight hours of seconds are merged, not dropped: the figure is that of all samples.
#[test]
fn long_runs_are_merged() {
    let long: Vec<Bins> = (0..28_800u64).map(|at| vec![(1_000 + at % 7, 1)]).collect();
    let compared = compare(&long, &long, &[0.5, 0.99], 1);
    assert!((compared[0].current - 1_003.0).abs() < 1e-9 && compared[1].difference.unwrap().p() > 0.99);
}
