//! Writes the page of measured figures. Each bench writes its own section.

use std::fs;

/// Writes the section of the bench `name` into `benches/figures.md`, replacing its earlier section.
pub fn write(name: &str, section: &str) {
    let (open, close) = (
        format!("<!-- bench:{name} -->"),
        format!("<!-- /bench:{name} -->"),
    );
    let path = super::root().join("benches/figures.md");
    let text = fs::read_to_string(&path).expect("the page can be read");
    let section = format!("{open}\n{section}\n{close}");
    let text = match (text.find(&open), text.find(&close)) {
        (Some(from), Some(to)) => format!("{}{section}{}", &text[..from], &text[to + close.len()..]),
        _ => format!("{}\n\n{section}\n", text.trim_end()),
    };
    fs::write(path, text).expect("the page can be written");
}
