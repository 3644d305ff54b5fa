//! Textbook distributions and tests, no more of them than a comparison needs.

/// Terms after which a sum over all tables is no better than the normal approximation.
const EXACT_UP_TO: u64 = 10_000;

/// Logarithm of the gamma function for `x > 0` (Lanczos, g = 7): 13 digits or more.
pub fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + G + 0.5;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |sum, (n, c)| sum + c / (x + n as f64));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Regularised incomplete beta function, by its continued fraction (modified Lentz).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side only; the other one follows by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) { front * fraction(a, b, x) / a } else { 1.0 - front * fraction(b, a, 1.0 - x) / b }
}

#[expect(clippy::many_single_char_names, reason = "as in the literature")]
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut c, mut d) = (1.0, 1.0 / guard(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for m in (1..500).map(f64::from) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            step = d * c;
            value *= step;
        }
        if (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// Chance that Student's t with `df` degrees of freedom is as far from 0 as `t`, on either side.
pub fn t_two_sided(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
}

/// The `t` that is exceeded on either side with chance `p`.
pub fn t_critical(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_two_sided(high, df) > p && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if t_two_sided(middle, df) > p { low = middle } else { high = middle }
    }
    high
}

/// Chance of a standard normal as far from 0 as `z`, on either side.
pub fn normal_two_sided(z: f64) -> f64 {
    // Student's t has long become normal there.
    t_two_sided(z, 1e7)
}

/// Fisher's exact test of two shares, two-sided: twice the smaller tail. With very many events the normal approximation.
pub fn fisher(a: u64, of_a: u64, b: u64, of_b: u64) -> f64 {
    let (a, b) = (a.min(of_a), b.min(of_b));
    let events = a + b;
    let all = of_a + of_b;
    if events == 0 || events == all || of_a == 0 || of_b == 0 {
        return 1.0;
    }
    if events.min(all - events) > EXACT_UP_TO {
        let (p, q) = (a as f64 / of_a as f64, b as f64 / of_b as f64);
        let pooled = events as f64 / all as f64;
        return normal_two_sided((q - p) / (pooled * (1.0 - pooled) * (1.0 / of_a as f64 + 1.0 / of_b as f64)).sqrt());
    }
    // The rarer of event and non-event, so that the sums are short.
    let (a, events) = if events <= all - events { (a, events) } else { (of_a - a, all - events) };
    let ln_choose = |n: u64, k: u64| ln_gamma(n as f64 + 1.0) - ln_gamma(k as f64 + 1.0) - ln_gamma((n - k) as f64 + 1.0);
    let whole = ln_choose(all, events);
    let chance = |k: u64| (ln_choose(of_a, k) + ln_choose(of_b, events - k) - whole).exp();
    let (least, most) = (events.saturating_sub(of_b), events.min(of_a));
    let lower: f64 = (least..=a).map(chance).sum();
    let upper: f64 = (a..=most).map(chance).sum();
    (2.0 * lower.min(upper)).min(1.0)
}

/// Wilson's interval of a share at a two-sided level `p`, for possibly fractional counts.
pub fn wilson(count: f64, of: f64, p: f64) -> (f64, f64) {
    if of <= 0.0 {
        return (0.0, 1.0);
    }
    let z = t_critical(p, 1e7);
    let share = count / of;
    let middle = (share + z * z / (2.0 * of)) / (1.0 + z * z / of);
    let half = z / (1.0 + z * z / of) * (share * (1.0 - share) / of + z * z / (4.0 * of * of)).max(0.0).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// Holm's step-down correction: the chance of even one false alarm among all is at most the level. In the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut highest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        highest = highest.max(p[at] * (p.len() - rank) as f64).min(1.0);
        adjusted[at] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-4 * b.abs().max(1e-3)
    }

    /// Against printed tables: t at 5 % is 12.706 with 1 degree of freedom, 2.571 with 5, 2.042 with 30, 1.960 in the limit.
    #[test]
    fn students_t_as_in_the_tables() {
        for (df, t) in [(1.0, 12.7062), (5.0, 2.57058), (30.0, 2.04227), (1e7, 1.959_964)] {
            assert!(close(t_critical(0.05, df), t), "{df}: {}", t_critical(0.05, df));
            assert!(close(t_two_sided(t, df), 0.05));
        }
        assert!(close(t_critical(0.01, 10.0), 3.16927));
        assert!(close(t_two_sided(0.0, 4.0), 1.0));
        assert!(close(t_two_sided(f64::INFINITY, 4.0), 0.0));
        assert!(close(ln_gamma(10.0), 362_880.0_f64.ln()) && close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln()));
    }

    /// The lady tasting tea: 3 of 4 right has a one-sided chance of 17 in 70.
    #[test]
    fn fisher_by_hand() {
        assert!(close(fisher(3, 4, 1, 4), 2.0 * 17.0 / 70.0));
        assert!(close(fisher(1, 4, 3, 4), 2.0 * 17.0 / 70.0));
        assert!(close(fisher(4, 4, 0, 4), 2.0 / 70.0));
        for nothing in [fisher(0, 10, 0, 10), fisher(10, 10, 10, 10), fisher(0, 0, 3, 10), fisher(9, 3, 3, 3)] {
            assert!(close(nothing, 1.0));
        }
        // Both ways of counting agree where they meet.
        let exact = fisher(4_900, 50_000, 5_100, 50_000);
        let normal = fisher(5_100, 50_000, 5_300, 50_000);
        assert!((exact - normal).abs() < 0.01, "{exact} {normal}");
    }

    #[test]
    fn holm_by_hand() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        assert!(adjusted.iter().zip(expected).all(|(a, b)| close(*a, b)), "{adjusted:?}");
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }

    #[test]
    fn wilson_as_published() {
        // 10 of 100: 5.52 % to 17.44 %.
        let (low, high) = wilson(10.0, 100.0, 0.05);
        assert!(close(low, 0.055_229) && close(high, 0.174_366), "{low} {high}");
        assert_eq!(wilson(0.0, 0.0, 0.05), (0.0, 1.0));
        assert!(wilson(0.0, 50.0, 0.05).0.abs() < 1e-12);
    }
}
