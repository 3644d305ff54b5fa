//! Names and arguments of tool calls. One call is open at a time; its state is the session's.

/// The nth tool call of a session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallNumber(pub u32);

impl CallNumber {
    /// As on the wire.
    pub fn id(self) -> String {
        format!("call-{}", self.0)
    }

    /// From the wire; none for what [`Self::id`] never makes.
    pub fn parse(id: &str) -> Option<Self> {
        let number = Self(id.strip_prefix("call-")?.parse().ok()?);
        (number.id() == id).then_some(number)
    }
}

/// Most characters of the user's words in a call's arguments: escaped, they must fit a message many times over.
const MAX_QUERY: usize = 200;

/// A JSON object that says what the tool is asked.
pub fn arguments(turn: u64, said: &str) -> String {
    let said: String = said.chars().take(MAX_QUERY).collect();
    serde_json::json!({ "turn": turn, "query": said }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_others_are_refused() {
        assert_eq!(CallNumber::parse("call-7"), Some(CallNumber(7)));
        for odd in ["", "call-", "call-07", "call-+7", "call--1", "call-99999999999", "7", "Call-7"] {
            assert_eq!(CallNumber::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn arguments_are_json_whatever_was_said() {
        let text = arguments(3, "say \"hi\"\n");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["query"], "say \"hi\"\n");
        assert_eq!(value["turn"], 3);
    }
}
