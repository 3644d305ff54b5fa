//! Base64 as the JSON dialects carry audio in it.

use base64_simd::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// Appends the standard alphabet's form of `bytes`, padded.
pub fn encode_into(bytes: &[u8], text: &mut String) {
    STANDARD.encode_append(bytes, text);
}

/// The standard alphabet's form of `bytes`, padded.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode_to_string(bytes)
}

/// What `text` stands for, in either alphabet, padded or not; none when it is base64 of nothing.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let padded = text.ends_with('=');
    let [standard, url_safe] = if padded { [STANDARD, URL_SAFE] } else { [STANDARD_NO_PAD, URL_SAFE_NO_PAD] };
    // No alphabet takes the other's letters, so the usual one need not be looked for.
    standard.decode_to_vec(text).or_else(|_| url_safe.decode_to_vec(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_padded_or_not_are_read() {
        let bytes = [0xfb, 0xef, 0xff, 0x00];
        assert_eq!(encode(&bytes), "++//AA==");
        for text in ["++//AA==", "++//AA", "--__AA==", "--__AA"] {
            assert_eq!(decode(text).as_deref(), Some(&bytes[..]), "{text}");
        }
        assert_eq!(decode(""), Some(Vec::new()));
        for bad in ["+-//AA==", "+", "a===", "AAAA AAAA", "\u{e9}AAA", "AA=A"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
