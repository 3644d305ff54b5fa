//! `profiles`: lists the profiles that the program carries.

use std::fmt::Write as _;

use super::Printed;
use crate::profile::{SHIPPED, Source, load};

/// A line for each: name, description.
pub fn profiles() -> Printed {
    let width = SHIPPED.iter().map(|profile| profile.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for shipped in SHIPPED {
        match load(&Source::Shipped(shipped.name.to_owned()), &[]) {
            // Writing to a string cannot fail.
            Ok(profile) => _ = writeln!(text, "{:width$}  {}", shipped.name, profile.description.trim()),
            Err(error) => return Printed::invalid(&error),
        }
    }
    Printed::ok(text)
}
