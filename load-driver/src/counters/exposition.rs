//! The text formats of Prometheus and `OpenMetrics`, as far as sums need them, and selectors of series.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// More series than any backend of sessions has.
const MAX_SERIES: usize = 200_000;

/// One line of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// Labels as they are compared: sorted, quoted.
    pub(super) labels: String,
    pairs: BTreeMap<String, String>,
    /// As it stands.
    pub(super) value: f64,
    /// Its own time.
    pub(super) time_us: Option<u64>,
}

/// Everything that a backend exposes, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Exposition {
    series: BTreeMap<String, Vec<Series>>,
    /// Names with a TYPE or HELP line, whether they have series or not.
    declared: BTreeSet<String>,
    /// Series that are there more than once.
    doubled: BTreeSet<String>,
}

impl Exposition {
    /// Reads a whole text; else says which line is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut out = Self::default();
        let mut seen: HashSet<(String, String)> = HashSet::new();
        let openmetrics = text.trim_end().ends_with("# EOF");
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                let mut words = comment.split_whitespace();
                if matches!(words.next(), Some("TYPE" | "HELP")) {
                    out.declared.extend(words.next().map(str::to_owned));
                }
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}: `{line}`", at + 1);
            let (name, rest) = name_of(line).ok_or_else(|| wrong("no name of a metric"))?;
            let (pairs, rest) = labels_of(rest).map_err(|why| wrong(&why))?;
            // An exemplar follows a `#`.
            let mut words = rest.split('#').next().unwrap_or_default().split_whitespace();
            let value = words.next().ok_or_else(|| wrong("no value"))?;
            let value = number(value).ok_or_else(|| wrong("the value is no number"))?;
            let time_us = match words.next() {
                None => None,
                Some(time) => {
                    let time: f64 = time.parse().map_err(|_| wrong("the timestamp is no number"))?;
                    let us = if openmetrics { time * 1e6 } else { time * 1e3 };
                    (us.is_finite() && us > 0.0).then_some(us as u64)
                }
            };
            if words.next().is_some() {
                return Err(wrong("more than a value and a timestamp"));
            }
            let labels = shown(&pairs);
            if seen.len() >= MAX_SERIES {
                return Err(format!("more than {MAX_SERIES} series"));
            }
            if !seen.insert((name.to_owned(), labels.clone())) {
                out.doubled.insert(format!("{name}{labels}"));
            }
            out.series.entry(name.to_owned()).or_default().push(Series { labels, pairs, value, time_us });
        }
        Ok(out)
    }

    /// The series that fit. One that is there twice says two things, and that is an error.
    pub(super) fn select(&self, selector: &Selector) -> Result<Vec<&Series>, String> {
        let all = self.series.get(&selector.name).map_or(&[][..], Vec::as_slice);
        let found: Vec<&Series> = all.iter().filter(|series| selector.fits(series)).collect();
        let twice = |series: &&&Series| self.doubled.contains(&format!("{}{}", selector.name, series.labels));
        match found.iter().find(twice) {
            Some(series) => Err(format!("the series {}{} is there more than once", selector.name, series.labels)),
            None => Ok(found),
        }
    }

    /// The name is known, whether or not a series fits.
    pub(super) fn is_declared(&self, selector: &Selector) -> bool {
        let family = |suffix: &str| selector.name.strip_suffix(suffix).is_some_and(|name| self.declared.contains(name));
        self.declared.contains(&selector.name) || family("_total") || self.series.contains_key(&selector.name)
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) => text.parse().ok(),
        _ => None,
    }
}

fn name_of(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// The labels in braces, if there are any, and what follows them.
fn labels_of(text: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut pairs = BTreeMap::new();
    let rest = matchers(text, |name, _, value| {
        if pairs.insert(name.to_owned(), value).is_some() { Err(format!("the label `{name}` is there twice")) } else { Ok(()) }
    })?;
    Ok((pairs, rest))
}

/// Walks `{name="value", other!="value"}`; gives back what follows it.
fn matchers(text: &str, mut each: impl FnMut(&str, bool, String) -> Result<(), String>) -> Result<&str, String> {
    let Some(mut rest) = text.trim_start().strip_prefix('{') else { return Ok(text) };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (name, after) = name_of(rest).ok_or("a label has no name")?;
        let after = after.trim_start();
        let (equal, after) = match (after.strip_prefix('='), after.strip_prefix("!=")) {
            (_, Some(after)) => (false, after),
            (Some(after), _) if !after.starts_with('~') => (true, after),
            _ => return Err(format!("after the label `{name}` follows = or != (no regular expressions)")),
        };
        let (value, after) =
            quoted(after.trim_start()).ok_or_else(|| format!("the value of the label `{name}` is not in double quotes"))?;
        each(name, equal, value)?;
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.starts_with('}') => rest,
            None => return Err("`}` is missing after the labels".to_owned()),
        };
    }
}

/// A text in double quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, text.get(at + 2..)?)),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

fn shown(pairs: &BTreeMap<String, String>) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let all: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", all.join(","))
}

/// What picks series: a name, and what their labels must be, or must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector {
    name: String,
    matchers: Vec<(String, bool, String)>,
}

impl Selector {
    /// As in Prometheus, with `=` and `!=`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = name_of(text.trim()).ok_or("it begins with the name of a metric")?;
        let mut found = Vec::new();
        let rest = matchers(rest, |name, equal, value| {
            found.push((name.to_owned(), equal, value));
            Ok(())
        })?;
        if rest.trim().is_empty() {
            Ok(Self { name: name.to_owned(), matchers: found })
        } else {
            Err(format!("`{}` follows the selector", rest.trim()))
        }
    }

    /// As it is compared with others.
    pub(super) fn sorted(mut self) -> Self {
        self.matchers.sort();
        self.matchers.dedup();
        self
    }

    /// A label that is not there is an empty one.
    fn fits(&self, series: &Series) -> bool {
        let has = |name: &String| series.pairs.get(name).map_or("", String::as_str);
        self.matchers.iter().all(|(name, equal, value)| (has(name) == value) == *equal)
    }
}
