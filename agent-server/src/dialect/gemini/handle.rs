//! Handles for session resumption. A mock has no state worth resuming: a handle is only told from what was never one.

/// The handle of a session after so many turns.
pub(super) fn issue(session_id: &str, turns: u64) -> String {
    let body = format!("{session_id}~{turns}");
    let check = check(&body);
    format!("{body}~{check:016x}")
}

/// It was made by [`issue`], here or in another process.
pub(super) fn is_ours(handle: &str) -> bool {
    handle.rsplit_once('~').is_some_and(|(body, sum)| u64::from_str_radix(sum, 16) == Ok(check(body)) && sum.len() == 16)
}

/// FNV-1a: against slips of copying, not against forgers.
fn check(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_issued_handles_are_ours() {
        let handle = issue("abc-1", 3);
        assert!(is_ours(&handle), "{handle}");
        for wrong in ["", "~", "x", "abc-1~4~0000000000000000", &handle[1..], &handle[..handle.len() - 1], &format!("{handle}0")] {
            assert!(!is_ours(wrong), "{wrong}");
        }
    }
}
