//! An exposition for Prometheus. A place is a selector: `sessions_ended_total{outcome="completed",app!="test"}`; series that fit are added up.

use std::{future::Future, pin::Pin};

use super::{
    CounterError, Document, Fetch, FetchResult, Number, Opening,
    exposition::{Exposition, Selector},
    http::Resource,
};

/// Both formats; a server picks.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
/// What client libraries call the start of the process.
const PROCESS: &str = "process_start_time_seconds";

/// No name that is worth a proposal is longer, bytes.
const LONGEST: usize = 160;

pub(super) fn check_place(place: &str) -> Result<(), String> {
    Selector::parse(place).map(drop)
}

/// Matchers stand in any order.
pub(super) fn is_same_place(one: &str, other: &str) -> bool {
    match (Selector::parse(one), Selector::parse(other)) {
        (Ok(one), Ok(other)) => one.sorted() == other.sorted(),
        _ => false,
    }
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Fetch>, CounterError> {
    Ok(Box::new(Prometheus(Resource::open(opening, ACCEPT)?)))
}

struct Prometheus(Resource);

impl Fetch for Prometheus {
    fn shown(&self) -> String {
        self.0.shown.clone()
    }

    fn fetch(&mut self) -> Pin<Box<dyn Future<Output = FetchResult> + Send + '_>> {
        Box::pin(async move {
            let body = self.0.get().await?;
            let text = std::str::from_utf8(&body).map_err(|_| self.0.unreadable("what is served there is no text"))?;
            let exposition = Exposition::parse(text).map_err(|why| self.0.unreadable(format!("no exposition for Prometheus: {why}")))?;
            Ok(Box::new(exposition) as Box<dyn Document>)
        })
    }
}

impl Document for Exposition {
    fn number(&self, place: &str) -> Result<Number, String> {
        let selector = Selector::parse(place)?;
        let found = self.select(&selector)?;
        if found.is_empty() {
            // Labelled counters come with their first event; the name is declared before.
            return Ok(if self.is_declared(&selector) { Number::NotYet } else { Number::Absent });
        }
        Ok(Number::Is(found.iter().map(|series| series.value).sum()))
    }

    fn text(&self, place: &str) -> Result<Option<String>, String> {
        Ok(match self.select(&Selector::parse(place)?)?.as_slice() {
            [] => None,
            // An `info` says it in its labels.
            all => Some(all.iter().map(|series| format!("{}{}", series.labels, series.value)).collect::<Vec<_>>().join(";")),
        })
    }

    fn process(&self) -> Option<String> {
        match self.select(&Selector::parse(PROCESS).ok()?).ok()?.as_slice() {
            [one] => Some(one.value.to_string()),
            _ => None,
        }
    }

    fn time_us(&self, places: &[&str]) -> Option<u64> {
        let selectors = places.iter().filter_map(|place| Selector::parse(place).ok());
        selectors.filter_map(|selector| self.select(&selector).ok()).flatten().filter_map(|series| series.time_us).min()
    }

    fn known(&self) -> Vec<String> {
        let like = |name: &&str| ["session", "call", "conn", "stream", "agent", "active"].iter().any(|part| name.contains(part));
        let (likely, others): (Vec<&str>, Vec<&str>) = self.names().filter(|name| name.len() <= LONGEST).partition(like);
        likely.into_iter().chain(others).map(str::to_owned).collect()
    }
}
