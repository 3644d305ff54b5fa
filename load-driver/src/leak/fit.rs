//! A line through blocks.

/// Sessions that go up with time as closely as this cannot be told from a leak.
const COLLINEAR: f64 = 0.95;
/// Parts of the run whose levels are compared, each with the one before.
const PARTS: usize = 6;

/// What a line through the blocks says; per hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Growth an hour at an even number of sessions.
    pub slope: f64,
    /// 95 %.
    pub interval: (f64, f64),
    /// What one live session more holds; none where their number hardly changed.
    pub per_session: Option<f64>,
    /// Blocks.
    pub blocks: usize,
}

/// Of rows of hours, live sessions, value.
pub(super) fn trend(rows: &[[f64; 3]]) -> Result<Trend, String> {
    let n = rows.len() as f64;
    let mean = |k: usize| rows.iter().map(|row| row[k]).sum::<f64>() / n;
    let (t, a, y) = (mean(0), mean(1), mean(2));
    let sum = |f: &dyn Fn(f64, f64, f64) -> f64| rows.iter().map(|row| f(row[0] - t, row[1] - a, row[2] - y)).sum::<f64>();
    let (tt, aa, ta) = (sum(&|t, _, _| t * t), sum(&|_, a, _| a * a), sum(&|t, a, _| t * a));
    let (ty, ay) = (sum(&|t, _, y| t * y), sum(&|_, a, y| a * y));
    if tt <= 0.0 {
        return Err("all samples are of one moment".to_owned());
    }
    // Sessions that hardly vary explain nothing.
    let varies = aa / n > 0.25 && (aa / n).sqrt() > 0.005 * a;
    let correlation = if aa > 0.0 { ta / (tt * aa).sqrt() } else { 0.0 };
    if varies && correlation.abs() > COLLINEAR {
        return Err("the number of sessions went with time: growth of the crowd and a leak look the same".to_owned());
    }
    let determinant = tt * aa - ta * ta;
    let (slope, per_session, spread, parameters) = if varies && determinant > 0.0 {
        ((ty * aa - ay * ta) / determinant, Some((ay * tt - ty * ta) / determinant), determinant / aa, 3.0)
    } else {
        (ty / tt, None, tt, 2.0)
    };
    let residuals: Vec<f64> =
        rows.iter().map(|row| row[2] - y - slope * (row[0] - t) - per_session.unwrap_or(0.0) * (row[1] - a)).collect();
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let likeness = if squares > 0.0 { (neighbours / squares).clamp(0.0, 0.95) } else { 0.0 };
    let freedom = (n * (1.0 - likeness) / (1.0 + likeness) - parameters).max(2.0);
    let error = (squares / freedom / spread).sqrt();
    let even: Vec<(f64, f64)> = rows.iter().map(|row| (row[0], row[2] - per_session.unwrap_or(0.0) * (row[1] - a))).collect();
    let half = (student(freedom) * error).max(by_parts(&even).unwrap_or(f64::INFINITY));
    Ok(Trend { slope, interval: (slope - half, slope + half), per_session, blocks: rows.len() })
}

/// Half the interval of the growth from part to part, of (hours, value): memory goes up in steps, each of them for good, and a line takes one that comes late
/// for a slope. What leaks grows in every part.
fn by_parts(rows: &[(f64, f64)]) -> Option<f64> {
    let mean = |part: usize| {
        let of = rows.get(part * rows.len() / PARTS..(part + 1) * rows.len() / PARTS).filter(|of| !of.is_empty())?;
        let n = of.len() as f64;
        Some((of.iter().map(|row| row.0).sum::<f64>() / n, of.iter().map(|row| row.1).sum::<f64>() / n))
    };
    let levels: Vec<(f64, f64)> = (0..PARTS).map(mean).collect::<Option<_>>()?;
    let growth: Vec<f64> = levels.windows(2).map(|two| (two[1].1 - two[0].1) / (two[1].0 - two[0].0)).collect();
    let n = growth.len() as f64;
    let average = growth.iter().sum::<f64>() / n;
    let variance = growth.iter().map(|one| (one - average).powi(2)).sum::<f64>() / (n - 1.0);
    Some(student(n - 1.0) * (variance / n).sqrt())
}

/// The 97.5 % quantile of Student's t, from above: an interval that is a little too wide is a finding too few, never one too many.
fn student(freedom: f64) -> f64 {
    let f = freedom;
    1.96 + 2.4 / f + 3.2 / (f * f) + 5.0 / (f * f * f)
}
