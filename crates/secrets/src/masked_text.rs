//! Texts from which known parts are taken out.

use std::collections::BTreeSet;

use serde_json::Value;

use konverge_base::{error::UserError, model::masked_value};

/// Replaces a secret in running text.
pub(super) const MASK: &str = "***";

/// Returns true if a value, or a part of it, is not shown as it is.
pub fn shows_mask(value: &Value) -> bool {
    masked_value::holds_mark(value) || value.to_string().contains(MASK)
}

/// Removes these texts from an error, however short they are, because a server repeats a refused value in its message.
#[must_use]
pub fn without_texts(failure: UserError, texts: &[String]) -> UserError {
    if texts.is_empty() {
        return failure;
    }
    let mut failure = failure;
    let causes = failure.causes.iter_mut().map(|cause| &mut cause.message);
    for message in std::iter::once(&mut failure.message)
        .chain(&mut failure.hints)
        .chain(causes)
    {
        *message = without(message, texts);
    }
    failure
}

/// Removes these texts from a message.
#[must_use]
pub fn without(message: &str, texts: &[String]) -> String {
    // The longest text comes first: otherwise removing a part of it would leave the rest.
    let mut texts: Vec<_> = texts.iter().filter(|text| !text.is_empty()).collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    texts.into_iter().fold(message.to_owned(), |message, text| {
        let quoted = text.escape_debug().to_string();
        message.replace(&quoted, MASK).replace(text.as_str(), MASK)
    })
}

/// Masks words in a text, but not inside longer words.
#[must_use]
pub fn without_words(text: &str, words: &BTreeSet<String>) -> String {
    // The longest words are masked first: otherwise a shorter one would mask only a part of a longer one.
    let mut words: Vec<_> = words.iter().filter(|word| text.contains(word.as_str())).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words
        .into_iter()
        .fold(text.to_owned(), |text, word| without_word(&text, word))
}

/// Masks a word in a text, but not inside a longer word.
fn without_word(text: &str, word: &str) -> String {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        masked.push_str(before);
        let joins = is_inside(masked.chars().next_back()) && is_inside(word.chars().next())
            || is_inside(word.chars().next_back()) && is_inside(after.chars().next());
        masked.push_str(if joins { word } else { MASK });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::error::ErrorKind;

    #[test]
    fn the_server_repeats_no_value_however_short_it_is() {
        let failure = UserError::new(
            ErrorKind::Kubernetes,
            "spec.a: Invalid value: \"x\\\"y\": no `abc`",
        )
        .hint("abc");
        let failure = without_texts(failure, &["abc".to_owned(), "x\"y".to_owned(), String::new()]);
        assert_eq!(failure.message, "spec.a: Invalid value: \"***\": no `***`");
        assert_eq!(failure.hints, ["***"]);
    }

    #[test]
    fn the_longest_text_is_removed_first() {
        let texts = ["ab", "abcd", ""].map(str::to_owned);
        assert_eq!(without("abcd ab x", &texts), "*** *** x");
        let failure = UserError::new(ErrorKind::Kubernetes, "ab");
        assert_eq!(without_texts(failure, &[]).message, "ab");
    }

    #[test]
    fn a_word_is_masked_and_a_part_of_a_word_stays() {
        for (text, word, masked) in [
            ("the password is blue", "blue", "the password is ***"),
            ("blueberry, blue.berry", "blue", "blueberry, ***.berry"),
            ("a=1, b=12, c=1", "1", "a=***, b=12, c=***"),
            ("größer groß", "groß", "größer ***"),
            ("x", "", "x"),
            ("blue", "blue", "***"),
        ] {
            assert_eq!(without_word(text, word), masked);
        }
    }
}
