//! A table over parameters: every combination of some values of some keys.

use std::fmt;

use serde::Serialize;

use crate::{
    balance::{Balance, METRICS, figure, shown},
    profile::{Override, ProfileError},
    report::text,
};

/// Most combinations of one table.
const MAX_POINTS: usize = 10_000;

/// A key of the profile and the values that it takes, as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// `path.to.key`, as for `--set`.
    pub key: String,
    /// In the order of the table.
    pub values: Vec<String>,
}

/// A text that is no axis, or too many of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// No key, or no value.
    #[error("--sweep {0}: write KEY=VALUE,VALUE,..., such as routing.report_lag=0s,10s")]
    Shape(String),
    /// A key in two axes.
    #[error("--sweep {0}: the key is swept twice")]
    Twice(String),
    /// More runs than anybody would wait for.
    #[error("--sweep: {0} combinations are more than the limit of {MAX_POINTS}")]
    TooMany(usize),
}

impl Axis {
    /// From `key=a,b,c`. Commas in brackets, braces, parentheses and quotes belong to a value.
    pub fn parse(text: &str) -> Result<Self, SweepError> {
        let error = || SweepError::Shape(text.to_owned());
        let (key, list) = text.split_once('=').ok_or_else(error)?;
        let values: Vec<String> = split(list).iter().map(|value| value.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(error());
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut from) = (0_i32, None, 0);
    let mut values = Vec::new();
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth <= 0 => {
                values.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    values.push(&list[from..]);
    values
}

/// One combination: a value of each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    settings: Vec<(String, String)>,
}

impl Point {
    /// What makes it of the profile.
    pub fn overrides(&self) -> Result<Vec<Override>, ProfileError> {
        self.settings.iter().map(|(key, value)| Override::parse(&format!("{key}={value}"))).collect()
    }

    /// Keys and values.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&each.join(" "))
    }
}

/// Every combination; the last axis changes first. Without axes there is one, of nothing.
pub fn points(axes: &[Axis]) -> Result<Vec<Point>, SweepError> {
    if let Some((_, axis)) = axes.iter().enumerate().find(|(at, axis)| axes[..*at].iter().any(|other| other.key == axis.key)) {
        return Err(SweepError::Twice(axis.key.clone()));
    }
    let count = axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.values.len()));
    if count > MAX_POINTS {
        return Err(SweepError::TooMany(count));
    }
    let mut all = vec![Point { settings: Vec::new() }];
    for axis in axes {
        let with = |point: &Point, value: &String| {
            let mut settings = point.settings.clone();
            settings.push((axis.key.clone(), value.clone()));
            Point { settings }
        };
        all = all.iter().flat_map(|point| axis.values.iter().map(|value| with(point, value)).collect::<Vec<_>>()).collect();
    }
    Ok(all)
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepRow {
    /// Keys and values of the combination, in the order of the axes.
    pub settings: Vec<(String, String)>,
    /// Of the run.
    pub policy: String,
    /// Its figures.
    pub balance: Balance,
}

/// Swept keys first, then the policy, then a column for each figure.
pub fn table(axes: &[Axis], rows: &[SweepRow], metrics: &[&str]) -> String {
    let columns: Vec<_> = metrics.iter().filter_map(|name| METRICS.iter().find(|measure| measure.name == *name)).collect();
    // Keys are long and values short: the last step of the path tells them apart, unless it does not.
    let short = |axis: &Axis| {
        let last = axis.key.rsplit('.').next().unwrap_or(&axis.key).to_owned();
        let alone = axes.iter().filter(|other| other.key.rsplit('.').next() == Some(last.as_str())).count() == 1;
        if alone { last } else { axis.key.clone() }
    };
    let heads: Vec<String> =
        axes.iter().map(short).chain(["policy".to_owned()]).chain(columns.iter().map(|measure| measure.head.to_owned())).collect();
    let line = |row: &SweepRow| {
        let figures =
            columns.iter().map(|measure| figure(&row.balance, measure.name).map_or_else(|| "-".to_owned(), |value| shown(measure, value)));
        row.settings.iter().map(|(_, value)| value.clone()).chain([row.policy.clone()]).chain(figures).collect()
    };
    text::table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), &rows.iter().map(line).collect::<Vec<Vec<String>>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_key_and_values_that_may_hold_commas() {
        let axis = Axis::parse("a.b=1, uniform(1s, 2s),{x: [1, 2]},'p,q'").unwrap();
        assert_eq!((axis.key.as_str(), axis.values), ("a.b", ["1", "uniform(1s, 2s)", "{x: [1, 2]}", "'p,q'"].map(str::to_owned).to_vec()));
        for bad in ["", "a", "=1", "a=", "a=1,,2", "a=1,"] {
            assert_eq!(Axis::parse(bad), Err(SweepError::Shape(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn points_are_every_combination_in_order() {
        let axes = ["a=1,2", "b=x,y,z"].map(|text| Axis::parse(text).unwrap());
        let all: Vec<String> = points(&axes).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["a=1 b=x", "a=1 b=y", "a=1 b=z", "a=2 b=x", "a=2 b=y", "a=2 b=z"]);
        assert_eq!(points(&[]).unwrap().len(), 1);
        assert_eq!(points(&[axes[0].clone(), axes[0].clone()]), Err(SweepError::Twice("a".to_owned())));
        let many = Axis { key: "c".to_owned(), values: vec!["1".to_owned(); 6_000] };
        assert_eq!(points(&[axes[0].clone(), many]), Err(SweepError::TooMany(12_000)));
    }

    #[test]
    fn the_table_leads_with_what_was_swept() {
        let axes = ["server.x=1", "routing.y=2"].map(|text| Axis::parse(text).unwrap());
        let balance = Balance { assignments: 9, herd: 4, ..Balance::default() };
        let row = SweepRow { settings: points(&axes).unwrap()[0].settings().to_vec(), policy: "p".to_owned(), balance };
        let text = table(&axes, &[row], &["herd"]);
        assert_eq!(text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["x", "y", "policy", "herd"]);
        assert_eq!(text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(), ["1", "2", "p", "4"]);
    }
}
