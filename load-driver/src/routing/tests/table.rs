//! The tree against a list.

use proptest::{collection::vec, prelude::*};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::routing::tree::Tree;

/// Takes a number of the backend's for the weight, whatever it is.
#[derive(Debug)]
struct Given;

impl Policy for Given {
    fn weight(&self, backend: &Backend) -> Option<f64> {
        backend.report.map(|report| report.qps)
    }

    fn pick(&mut self, _: &Table, _: &mut ChaCha8Rng) -> Option<usize> {
        None
    }
}

#[derive(Debug, Clone)]
enum Change {
    Weight(usize, Option<f64>),
    Drain(usize, bool),
    Cap(usize, Option<f64>),
    Up(usize, bool),
    Mask(Option<usize>),
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        10 => (-3..6i32).prop_map(f64::from),
        5 => 0.0..1e3,
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -0.0]),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let index = 0..40usize;
    prop_oneof![
        8 => (index.clone(), prop::option::weighted(0.9, number())).prop_map(|(i, w)| Change::Weight(i, w)),
        1 => (index.clone(), any::<bool>()).prop_map(|(i, on)| Change::Drain(i, on)),
        1 => (index.clone(), prop::option::of(number())).prop_map(|(i, cap)| Change::Cap(i, cap)),
        1 => (index.clone(), any::<bool>()).prop_map(|(i, on)| Change::Up(i, on)),
        1 => prop::option::of(index).prop_map(Change::Mask),
    ]
}

/// One backend of the list.
#[derive(Debug, Clone, Copy)]
struct Item {
    weight: Option<f64>,
    draining: bool,
    cap: Option<f64>,
    up: bool,
    masked: bool,
}

impl Item {
    fn eligible(&self) -> bool {
        // It has no sessions.
        self.up && !self.masked && !self.draining && !self.cap.is_some_and(|cap| cap <= 0.0)
    }

    fn weight(&self) -> Option<f64> {
        self.weight.filter(|weight| weight.is_finite())
    }
}

fn apply(table: &mut Table, items: &mut [Item], change: &Change) {
    let len = items.len();
    match *change {
        Change::Mask(index) => {
            items.iter_mut().enumerate().for_each(|(i, item)| item.masked = Some(i) == index);
            table.mask(index);
        }
        Change::Weight(index, _) | Change::Drain(index, _) | Change::Cap(index, _) | Change::Up(index, _) if index >= len => {
            table.update(index, &Given, |_| panic!("there is no backend {index}"));
            table.set_up(index, true);
        }
        Change::Up(index, up) => {
            items[index].up = up;
            table.set_up(index, up);
        }
        Change::Weight(index, weight) => {
            items[index].weight = weight;
            if weight.is_none() {
                (items[index].draining, items[index].cap) = (false, None);
            }
            let of = |backend: &mut Backend| weight.map(|qps| Report { qps, ..backend.report.unwrap_or_default() });
            table.update(index, &Given, |backend| backend.report = of(backend));
        }
        Change::Drain(index, draining) => {
            items[index].draining = draining;
            items[index].weight = items[index].weight.or(Some(0.0));
            table.update(index, &Given, |backend| backend.report = Some(Report { draining, ..backend.report.unwrap_or_default() }));
        }
        Change::Cap(index, max_sessions) => {
            items[index].cap = max_sessions;
            items[index].weight = items[index].weight.or(Some(0.0));
            table.update(index, &Given, |backend| backend.report = Some(Report { max_sessions, ..backend.report.unwrap_or_default() }));
        }
    }
}

/// As often as each may be drawn: weight, or the mean for the unknown.
fn shares(items: &[Item]) -> Vec<f64> {
    let known: Vec<f64> = items.iter().filter(|item| item.eligible()).filter_map(Item::weight).map(|w| w.clamp(0.0, 1e200)).collect();
    let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let share = |item: &Item| if item.eligible() { item.weight().map_or(mean, |weight| weight.clamp(0.0, 1e200)) } else { 0.0 };
    items.iter().map(share).collect()
}

fn check(table: &Table, items: &[Item], rng: &mut ChaCha8Rng) -> Result<(), TestCaseError> {
    let eligible: Vec<usize> = (0..items.len()).filter(|i| items[*i].eligible()).collect();
    let known: Vec<usize> = eligible.iter().copied().filter(|i| items[*i].weight().is_some()).collect();
    prop_assert_eq!((table.len(), table.choices(), table.known()), (items.len(), eligible.len(), known.len()));
    prop_assert!((0..items.len() + 3).all(|i| table.eligible(i) == eligible.contains(&i)));
    prop_assert!((0..=eligible.len()).all(|n| table.nth(n) == eligible.get(n).copied()));
    for last in (0..items.len() + 2).chain([usize::MAX]) {
        let after = eligible.iter().find(|i| **i > last).or(eligible.first()).copied();
        prop_assert_eq!(table.after(last), after, "after {}", last);
    }

    let shares = shares(items);
    let total: f64 = shares.iter().sum();
    if let Some(mean) = table.mean() {
        let want = known.iter().map(|i| shares[*i]).sum::<f64>() / known.len() as f64;
        prop_assert!(mean.is_finite() && mean >= 0.0 && (mean - want).abs() <= want * 1e-9, "mean {} for {}", mean, want);
    } else {
        prop_assert!(known.is_empty());
    }
    let top = known.iter().filter_map(|i| table.weight(*i)).fold(f64::NEG_INFINITY, f64::max);
    let best: Vec<usize> = known.iter().copied().filter(|i| table.weight(*i) == Some(top)).collect();
    let best = if known.is_empty() { &eligible } else { &best };
    for _ in 0..8 {
        for (picked, among) in [(table.most(rng), best), (table.any(rng), &eligible)] {
            prop_assert!(picked.map_or(among.is_empty(), |i| among.contains(&i)), "{:?} is not among {:?}", picked, among);
        }
        let unknown = table.any_unknown(rng);
        prop_assert!(unknown.map_or(known.len() == eligible.len(), |i| eligible.contains(&i) && !known.contains(&i)));
        let drawn = table.draw(rng);
        prop_assert!(drawn.map_or(total <= 0.0, |i| shares[i] > 0.0), "{:?} drawn by {:?}", drawn, shares);
    }
    // Where numbers have all their digits.
    if !known.is_empty() && total > 1e-290 {
        // Laid end to end, every backend has its share, but for rounding at the ends.
        let mut end = 0.0;
        for (index, share) in shares.iter().enumerate().filter(|(_, share)| **share > total * 1e-6) {
            let before: f64 = shares[..index].iter().sum();
            for inside in [0.001, 0.5, 0.999] {
                prop_assert_eq!(table.at((before + share * inside) / total), Some(index), "of {:?}", &shares);
            }
            prop_assert!(before >= end);
            end = before;
        }
        prop_assert!(table.at(1.0 - f64::EPSILON / 2.0).is_some_and(|index| shares[index] > 0.0));
    }
    Ok(())
}

/// The same backends in a table that has no past.
fn anew(table: &Table, items: &[Item]) -> Tree {
    let mut new = Table::new(items.len(), 1.0);
    for (index, item) in items.iter().enumerate() {
        new.update(index, &Given, |backend| *backend = table.backend(index).clone());
        new.set_up(index, item.up);
        if item.masked {
            new.mask(Some(index));
        }
    }
    new.tree().clone()
}

proptest! {
    #[test]
    fn a_table_answers_as_a_list_would(len in 0..24usize, changes in vec(change(), 0..60), seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut table = Table::new(len, 1.0);
        let mut items = vec![Item { weight: None, draining: false, cap: None, up: true, masked: false }; len];
        check(&table, &items, &mut rng)?;
        for change in &changes {
            apply(&mut table, &mut items, change);
            check(&table, &items, &mut rng)?;
        }
        // To the last bit: sums do not remember.
        prop_assert_eq!(table.tree(), &anew(&table, &items));
    }
}

fn weighed(weights: &[Option<f64>]) -> Table {
    let mut table = Table::new(weights.len(), 1.0);
    for (index, weight) in weights.iter().enumerate() {
        table.update(index, &Given, |backend| backend.report = weight.map(|qps| Report { qps, ..Report::default() }));
    }
    table
}

fn count(len: usize, draws: usize, mut draw: impl FnMut(&mut ChaCha8Rng) -> Option<usize>) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut counts = vec![0.0; len];
    (0..draws).for_each(|_| counts[draw(&mut rng).unwrap()] += 1.0 / draws as f64);
    counts
}

#[test]
fn draws_are_as_often_as_weights_say_and_the_unknown_as_the_mean() {
    let table = weighed(&[Some(1.0), Some(3.0), None, Some(0.0), Some(-5.0), Some(4.0)]);
    // The mean of 1, 3, 0, 0 (for -5) and 4 is 1.6.
    let shares = count(6, 100_000, |rng| table.draw(rng));
    for (share, weight) in shares.into_iter().zip([1.0, 3.0, 1.6, 0.0, 0.0, 4.0]) {
        near(share, weight / 9.6, if weight > 0.0 { 0.01 } else { 0.0 });
    }
}

#[test]
fn the_highest_are_taken_all_alike() {
    let table = weighed(&[Some(2.0), None, Some(2.0), Some(1.0), Some(2.0), Some(f64::NAN)]);
    let shares = count(6, 30_000, |rng| table.most(rng));
    for (share, want) in shares.into_iter().zip([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]) {
        near(share, want / 3.0, want * 0.015);
    }
    let shares = count(6, 30_000, |rng| table.any(rng));
    for share in shares {
        near(share, 1.0 / 6.0, 0.012);
    }
    let shares = count(6, 30_000, |rng| table.any_unknown(rng));
    for (share, want) in shares.into_iter().zip([0.0, 0.5, 0.0, 0.0, 0.0, 0.5]) {
        near(share, want, want * 0.03);
    }
}
