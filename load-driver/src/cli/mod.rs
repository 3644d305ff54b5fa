//! Subcommands.

pub mod check;
pub mod profiles;
pub mod schema;

/// What a command prints, and whether it went well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// For stdout when `ok`, else for stderr.
    pub text: String,
    /// False: the profile is invalid, exit code 104.
    pub ok: bool,
}

impl Printed {
    fn ok(text: String) -> Self {
        Self { text, ok: true }
    }

    fn invalid(error: &dyn std::error::Error) -> Self {
        Self { text: format!("{error}\n"), ok: false }
    }
}
