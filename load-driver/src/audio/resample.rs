//! Change of sample rate by a windowed sinc.

/// Zero crossings on each side: enough for speech.
const LOBES: f64 = 12.0;

/// `samples` at `from` Hz as they would be at `to` Hz. Both are above zero.
pub(super) fn resample(samples: &[i16], from: u32, to: u32) -> Vec<i16> {
    if from == to {
        return samples.to_vec();
    }
    let step = f64::from(from) / f64::from(to);
    // Going down, the filter also takes away what the lower rate cannot hold.
    let cutoff = (1.0 / step).min(1.0);
    let reach = LOBES / cutoff;
    let length = (samples.len() as u64 * u64::from(to) / u64::from(from)) as usize;
    (0..length)
        .map(|n| {
            let centre = n as f64 * step;
            let first = (centre - reach).ceil().max(0.0) as usize;
            let last = ((centre + reach).floor() as usize).min(samples.len().saturating_sub(1));
            let (mut sum, mut weight) = (0.0, 0.0);
            for (at, &sample) in samples.iter().enumerate().take(last + 1).skip(first) {
                let x = at as f64 - centre;
                let w = sinc(x * cutoff) * (0.5 + 0.5 * (std::f64::consts::PI * x / reach).cos());
                sum += f64::from(sample) * w;
                weight += w;
            }
            if weight.abs() < 1e-9 { 0 } else { (sum / weight).round().clamp(-32_768.0, 32_767.0) as i16 }
        })
        .collect()
}

fn sinc(x: f64) -> f64 {
    let x = std::f64::consts::PI * x;
    if x.abs() < 1e-9 { 1.0 } else { x.sin() / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, rate: u32) -> Vec<i16> {
        (0..rate / 2).map(|i| (10_000.0 * (std::f64::consts::TAU * hz * f64::from(i) / f64::from(rate)).sin()) as i16).collect()
    }

    fn rms(samples: &[i16]) -> f64 {
        (samples.iter().map(|&s| f64::from(s).powi(2)).sum::<f64>() / samples.len() as f64).sqrt()
    }

    #[test]
    fn a_tone_stays_itself() {
        for (from, to) in [(16_000, 24_000), (16_000, 8_000), (44_100, 16_000), (8_000, 16_000), (48_000, 24_000)] {
            let out = resample(&tone(700.0, from), from, to);
            let expected = tone(700.0, to);
            assert!(out.len().abs_diff(expected.len()) <= 1, "{from} {to}");
            // The edges lack half of the filter.
            let worst = out.iter().zip(&expected).skip(200).take(expected.len() - 400).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(worst < 150, "{from} to {to}: off by {worst}");
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_is_taken_away() {
        assert!(rms(&resample(&tone(6_500.0, 16_000), 16_000, 8_000)) < 100.0);
        assert!(resample(&[], 16_000, 8_000).is_empty());
    }
}
