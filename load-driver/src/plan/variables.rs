//! `${NAME}` in a text: the environment's word for it.

/// What is wrong with a text that names variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// There is no such variable.
    #[error("the environment variable {0} is not set")]
    Missing(String),
    /// `${` without `}`, or with no name in it.
    #[error("`${{` begins the name of an environment variable: write ${{NAME}}")]
    Malformed,
}

/// The text with each `${NAME}` replaced by what `lookup` says of it.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, VariableError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let (name, after) = after.split_once('}').ok_or(VariableError::Malformed)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(VariableError::Malformed);
        }
        out.push_str(&lookup(name).ok_or_else(|| VariableError::Missing(name.to_owned()))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// The text names a variable.
pub fn has_variable(text: &str) -> bool {
    text.contains("${")
}

/// Of the process.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_a(text: &str) -> Result<String, VariableError> {
        expand(text, |name| (name == "A_1").then(|| "one${B}".to_owned()))
    }

    #[test]
    fn variables_are_replaced_once() {
        assert_eq!(with_a("Bearer ${A_1}, $A_1 {A_1}").as_deref(), Ok("Bearer one${B}, $A_1 {A_1}"));
        assert_eq!(with_a("${B}"), Err(VariableError::Missing("B".to_owned())));
        for text in ["${", "${}", "${A B}", "x${A_1"] {
            assert_eq!(with_a(text), Err(VariableError::Malformed), "{text}");
        }
    }
}
