//! Handles for session resumption. What a mock has to go on from is how many turns there were, and that is in the handle: any process can resume the
//! session of any other, and what was never a handle is told from one.

/// The handle of a session after so many turns.
pub(super) fn issue(session_id: &str, turns: u64) -> String {
    let body = format!("{session_id}~{turns}");
    let check = check(&body);
    format!("{body}~{check:016x}")
}

/// Turns before it was made by [`issue`], here or in another process; none of what was not.
pub(super) fn turns(handle: &str) -> Option<u64> {
    let (body, sum) = handle.rsplit_once('~')?;
    let ours = sum.len() == 16 && u64::from_str_radix(sum, 16) == Ok(check(body));
    body.rsplit_once('~').filter(|_| ours)?.1.parse().ok()
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
        assert_eq!(turns(&handle), Some(3), "{handle}");
        for wrong in ["", "~", "x", "abc-1~4~0000000000000000", &handle[1..], &handle[..handle.len() - 1], &format!("{handle}0")] {
            assert_eq!(turns(wrong), None, "{wrong}");
        }
    }
}
