//! `p(95)<300`: what a figure must be.

use std::fmt;

use super::{Measure, ParseError};
use crate::record::histogram::LIMIT_US;

/// How many samples become one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    /// Mean.
    Avg,
    /// Lowest.
    Min,
    /// `p(50)`.
    Med,
    /// Highest; of a gauge: its peak.
    Max,
    /// Percentile, 0 to 100.
    Percentile(f64),
    /// Number of samples or events.
    Count,
    /// Share of what it is a part of, or events a second.
    Rate,
    /// Of a gauge: now.
    Value,
}

/// Comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Operator {
    // Longer ones first: `<=` must not be read as `<`.
    const ALL: [(&str, Self); 6] = [
        ("<=", Self::LessEqual),
        (">=", Self::GreaterEqual),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    /// Whether `value` is as it must be. Never true of NaN.
    #[expect(clippy::float_cmp, reason = "counts are whole, and a profile that asks for equality of a latency means it")]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        !value.is_nan()
            && match self {
                Self::Less => value < limit,
                Self::LessEqual => value <= limit,
                Self::Greater => value > limit,
                Self::GreaterEqual => value >= limit,
                Self::Equal => value == limit,
                Self::NotEqual => value != limit,
            }
    }
}

/// A condition on one figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    /// Which figure.
    pub aggregate: Aggregate,
    /// How it is compared.
    pub operator: Operator,
    /// With what: milliseconds for a latency's value, a plain number otherwise.
    pub limit: f64,
    text: String,
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !accept(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, self.at, message)
    }
}

impl Expression {
    /// Parses a condition on a figure of this measure.
    pub fn parse(text: &str, measure: Measure) -> Result<Self, ParseError> {
        let mut cursor = Cursor { text, at: 0 };
        cursor.skip_space();
        let aggregate_at = cursor.at;
        let aggregate = aggregate(&mut cursor)?;
        check_aggregate(aggregate, measure).map_err(|message| ParseError::new(text, aggregate_at, message))?;
        cursor.skip_space();
        let Some((_, operator)) = Operator::ALL.into_iter().find(|(token, _)| cursor.take(token)) else {
            return Err(cursor.error("expected one of < <= > >= == !="));
        };
        cursor.skip_space();
        let limit = limit(&mut cursor, aggregate, measure)?;
        cursor.skip_space();
        if !cursor.rest().is_empty() {
            return Err(cursor.error("expected the end of the expression"));
        }
        Ok(Self { aggregate, operator, limit, text: text.trim().to_owned() })
    }
}

fn aggregate(cursor: &mut Cursor<'_>) -> Result<Aggregate, ParseError> {
    let start = cursor.at;
    let name = cursor.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
    Ok(match name {
        "avg" => Aggregate::Avg,
        "min" => Aggregate::Min,
        "med" => Aggregate::Med,
        "max" => Aggregate::Max,
        "count" => Aggregate::Count,
        "rate" => Aggregate::Rate,
        "value" => Aggregate::Value,
        "p" => {
            cursor.skip_space();
            if !cursor.take("(") {
                return Err(cursor.error("expected `(`, as in p(95)"));
            }
            cursor.skip_space();
            let number_at = cursor.at;
            let percentile = number(cursor)?;
            if !(0.0..=100.0).contains(&percentile) {
                return Err(ParseError::new(cursor.text, number_at, "a percentile lies between 0 and 100"));
            }
            cursor.skip_space();
            if !cursor.take(")") {
                return Err(cursor.error("expected `)`, as in p(95)"));
            }
            Aggregate::Percentile(percentile)
        }
        _ => {
            let message = "expected one of avg, min, med, max, count, rate, value, p(N), as in p(95)<300";
            return Err(ParseError::new(cursor.text, start, message));
        }
    })
}

fn number(cursor: &mut Cursor<'_>) -> Result<f64, ParseError> {
    let start = cursor.at;
    let digits = cursor.take_while(|c| c.is_ascii_digit() || c == '.');
    digits.parse().map_err(|_| ParseError::new(cursor.text, start, "expected a number that is not negative, such as 300 or 0.01"))
}

fn check_aggregate(aggregate: Aggregate, measure: Measure) -> Result<(), &'static str> {
    use Aggregate::{Avg, Count, Max, Med, Min, Percentile, Rate, Value};
    let fits = match measure {
        Measure::Latency(..) => matches!(aggregate, Avg | Min | Med | Max | Percentile(_) | Count | Rate),
        Measure::Counter(_) | Measure::Sessions(_) => matches!(aggregate, Count | Rate),
        Measure::Gauge(_) => matches!(aggregate, Value | Max),
        Measure::Leak(_) | Measure::Drift(_) => aggregate == Value,
    };
    if fits {
        return Ok(());
    }
    Err(match measure {
        Measure::Latency(..) => "a latency has avg, min, med, max, p(N), count and rate",
        Measure::Counter(_) | Measure::Sessions(_) => "a counter has count and rate",
        Measure::Leak(_) => "a leak has value: the lower bound of its growth an hour",
        Measure::Drift(_) => "a drift has value: of the whole run",
        Measure::Gauge(_) => "a gauge has value (at the end) and max (its peak)",
    })
}

fn limit(cursor: &mut Cursor<'_>, aggregate: Aggregate, measure: Measure) -> Result<f64, ParseError> {
    let start = cursor.at;
    let number = number(cursor)?;
    let unit_at = cursor.at;
    let unit = cursor.take_while(|c| c.is_ascii_alphabetic() || c == '%');
    let is_time = matches!(measure, Measure::Latency(..)) && !matches!(aggregate, Aggregate::Count | Aggregate::Rate);
    if !is_time {
        return if unit.is_empty() { Ok(number) } else { Err(ParseError::new(cursor.text, unit_at, "this figure has no unit")) };
    }
    let ms = match unit {
        "us" => number / 1_000.0,
        "" | "ms" => number,
        "s" => number * 1_000.0,
        "m" => number * 60_000.0,
        _ => return Err(ParseError::new(cursor.text, unit_at, "expected a unit of time: us, ms (the default), s or m")),
    };
    if ms * 1_000.0 >= LIMIT_US as f64 {
        let message = format!("latencies are recorded up to {} s; this limit could not fail or not hold", LIMIT_US / 1_000_000);
        return Err(ParseError::new(cursor.text, start, message));
    }
    Ok(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Counter, Metric},
        threshold::{Basis, Gauge},
    };

    const LATENCY: Measure = Measure::Latency(Metric::TurnResponse, Basis::Response);
    const COUNTER: Measure = Measure::Counter(Counter::TurnsMissed);
    const GAUGE: Measure = Measure::Gauge(Gauge::Active);

    #[test]
    fn the_grammar() {
        use Aggregate::{Avg, Count, Max, Med, Min, Percentile, Rate, Value};
        use Operator::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        for (text, measure, aggregate, operator, limit) in [
            ("p(95)<300", LATENCY, Percentile(95.0), Less, 300.0),
            ("p(99.9) <= 1.5s", LATENCY, Percentile(99.9), LessEqual, 1_500.0),
            (" p( 0 ) > 800us ", LATENCY, Percentile(0.0), Greater, 0.8),
            ("avg>=800ms", LATENCY, Avg, GreaterEqual, 800.0),
            ("med<2m", LATENCY, Med, Less, 120_000.0),
            ("min!=0", LATENCY, Min, NotEqual, 0.0),
            ("max<1000", LATENCY, Max, Less, 1_000.0),
            ("count>100", LATENCY, Count, Greater, 100.0),
            ("rate<0.01", COUNTER, Rate, Less, 0.01),
            ("count==0", COUNTER, Count, Equal, 0.0),
            ("value>=10", GAUGE, Value, GreaterEqual, 10.0),
            ("max>=1000", GAUGE, Max, GreaterEqual, 1_000.0),
        ] {
            let parsed = Expression::parse(text, measure).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((parsed.aggregate, parsed.operator), (aggregate, operator), "{text}");
            assert!((parsed.limit - limit).abs() < 1e-9, "{text}: {}", parsed.limit);
        }
    }

    #[test]
    fn errors_say_where() {
        for (text, measure, position, part) in [
            ("", LATENCY, 0, "expected one of avg"),
            ("p95<300", LATENCY, 0, "as in p(95)<300"),
            ("p<300", LATENCY, 1, "expected `(`"),
            ("p(95<300", LATENCY, 4, "expected `)`"),
            ("p(101)<300", LATENCY, 2, "between 0 and 100"),
            ("p()<300", LATENCY, 2, "expected a number"),
            ("p(95)=300", LATENCY, 5, "expected one of <"),
            ("p(95)<", LATENCY, 6, "expected a number"),
            ("p(95)<-1", LATENCY, 6, "not negative"),
            ("p(95)<1.2.3", LATENCY, 6, "expected a number"),
            ("p(95)<300 parsecs", LATENCY, 10, "end of the expression"),
            ("p(95)<300parsecs", LATENCY, 9, "unit of time"),
            ("p(95)<300ms && max<1", LATENCY, 12, "end of the expression"),
            ("max<20m", LATENCY, 4, "recorded up to 1073 s"),
            ("p(95)<300", COUNTER, 0, "a counter has count and rate"),
            ("count<5ms", COUNTER, 7, "no unit"),
            ("rate<5ms", LATENCY, 6, "no unit"),
            ("value<5", LATENCY, 0, "a latency has"),
            ("count<5", GAUGE, 0, "a gauge has"),
            ("größe<5", LATENCY, 0, "expected one of avg"),
        ] {
            let error = Expression::parse(text, measure).expect_err(text);
            assert_eq!((error.position, error.message.contains(part)), (position, true), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            for measure in [LATENCY, COUNTER, GAUGE] {
                if let Err(error) = Expression::parse(&text, measure) {
                    proptest::prop_assert!(error.position <= text.chars().count());
                }
            }
            let _ = crate::threshold::Key::parse(&text, &["talk"]);
        }
    }

    #[test]
    fn no_condition_holds_of_nan() {
        for (_, operator) in Operator::ALL {
            assert!(!operator.holds(f64::NAN, 1.0) && !operator.holds(f64::NAN, f64::NAN));
        }
    }
}
