//! Lines of a profile as they may be shown: what is most likely a secret is masked, sign by sign, so that a caret still stands where it belongs.

use std::ops::Range;

use super::url::is_secret_name;

/// A line of YAML without its secrets: users of URLs, what goes by the name of a secret in their queries, and values of such names.
pub(super) fn masked(line: &str) -> String {
    let mut hidden = of_urls(line);
    for (at, _) in line.match_indices(':') {
        let rest = line.get(at + 1..).unwrap_or_default();
        let value = rest.trim_start();
        // A colon without a space is a part of a text.
        if value.len() < rest.len() && is_secret_name(name_before(line, at)) {
            let from = line.len() - value.len();
            hidden.push(from..from + length(value));
        }
    }
    hide(line, &hidden)
}

/// The same of an override, `path=value`.
pub(super) fn masked_override(text: &str) -> String {
    let mut hidden = of_urls(text);
    if let Some(at) = text.find('=').filter(|at| is_secret_name(name_before(text, *at))) {
        hidden.push(at + 1..text.len());
    }
    hide(text, &hidden)
}

fn of_urls(line: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    for (at, _) in line.match_indices("://") {
        let from = at + 3;
        let rest = line.get(from..).unwrap_or_default();
        let token = rest.split(|c: char| c.is_whitespace() || "'\"[]".contains(c)).next().unwrap_or_default();
        let (head, query) = token.split_once('?').unwrap_or((token, ""));
        if let Some(user) = head.rfind('@') {
            hidden.push(from..from + user);
        }
        let mut begins = from + head.len() + 1;
        for pair in query.split('&') {
            if let Some((name, _)) = pair.split_once('=').filter(|(name, _)| is_secret_name(name)) {
                hidden.push(begins + name.len() + 1..begins + pair.len());
            }
            begins += pair.len() + 1;
        }
    }
    hidden
}

/// The name that ends there, without quotes.
fn name_before(line: &str, at: usize) -> &str {
    let name = line.get(..at).unwrap_or_default().trim_end_matches(['\'', '"']);
    name.rsplit(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).next().unwrap_or_default()
}

fn hide(line: &str, hidden: &[Range<usize>]) -> String {
    let is_hidden = |at: usize| hidden.iter().any(|range| range.contains(&at));
    line.char_indices().map(|(at, c)| if is_hidden(at) { '*' } else { c }).collect()
}

/// Of the value with which this begins. A name of a variable, a list or a map is none.
fn length(value: &str) -> usize {
    match value.chars().next() {
        Some('$' | '[' | '{') | None => 0,
        Some(quote @ ('\'' | '"')) => value.get(1..).and_then(|rest| rest.find(quote)).map_or(value.len(), |end| end + 2),
        Some(_) => value.find([',', '}']).unwrap_or(value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_sign_by_sign() {
        for (line, shown) in [
            ("target: ['ws://user:pw@a:1/t?api_key=K1&x=1&sig=S', 'b:2']", "target: ['ws://*******@a:1/t?api_key=**&x=1&sig=*', 'b:2']"),
            ("  url: http://u:p@{host}:9/m?token=\u{e4}b", "  url: http://***@{host}:9/m?token=**"),
            ("headers: {Authorization: 'Bearer x, y', X-A: b}", "headers: {Authorization: *************, X-A: b}"),
            ("query: {api_key: k, plain: p}", "query: {api_key: *, plain: p}"),
            ("  \"Api-Key\": secret", "  \"Api-Key\": ******"),
            ("  Authorization: ${TOKEN}", "  Authorization: ${TOKEN}"),
            ("url: http://a/b?x=token:1", "url: http://a/b?x=token:1"),
            ("seed: 1  # token", "seed: 1  # token"),
            ("", ""),
        ] {
            assert_eq!(masked(line), shown);
            assert_eq!(shown.chars().count(), line.chars().count());
        }
        for (text, shown) in [
            ("--set connection.query.token=a b", "--set connection.query.token=***"),
            ("--set target=ws://u:p@a:1/t?key=K&x=1", "--set target=ws://***@a:1/t?key=*&x=1"),
            ("--set seed=x", "--set seed=x"),
        ] {
            assert_eq!(masked_override(text), shown);
        }
    }
}
