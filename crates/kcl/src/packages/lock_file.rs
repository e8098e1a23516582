//! Edits the text of `kcl.mod.lock`: entries are added and replaced, everything else keeps its bytes. New entries are
//! formatted as kpm writes them.

use super::lock_entry::{KEYS, LockEntry};

const SECTION: &str = "dependencies";

/// A table of the file, from its header to the next table.
#[derive(Default)]
struct Block {
    path: Vec<String>,
    lines: Vec<String>,
}

/// Returns the text with these entries added or replaced.
///
/// # Errors
/// The file has entries in another form than kpm writes, such as inline tables.
pub(super) fn update(text: &str, entries: &[LockEntry]) -> Result<String, String> {
    if entries.is_empty() {
        return Ok(text.to_owned());
    }
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut blocks = blocks(text);
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let path = vec![SECTION.to_owned()];
        let lines = vec![format!("[{SECTION}]{end}")];
        blocks.push(Block { path, lines });
    }
    for entry in entries {
        set(&mut blocks, entry, end);
    }
    let updated: String = blocks
        .iter()
        .flat_map(|block| &block.lines)
        .map(String::as_str)
        .collect();
    if is_updated(text, &updated, entries) {
        Ok(updated)
    } else {
        Err(
            "its entries are not tables of the form `[dependencies.NAME]`, as the official tools write them; delete the file, and run the command again"
                .to_owned(),
        )
    }
}

/// Splits the text into the lines before the first table, and each table. Joined, the parts are the whole text.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    for line in text.split_inclusive('\n') {
        if let Some(path) = head(line) {
            let lines = Vec::new();
            blocks.push(Block { path, lines });
        }
        if let Some(block) = blocks.last_mut() {
            block.lines.push(line.to_owned());
        }
    }
    blocks
}

/// Returns the path in a table header; `None` if the line is not one.
fn head(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start_matches('\u{feff}').trim();
    if !line.starts_with('[') {
        return None;
    }
    let mut table: toml::Table = line.parse().ok()?;
    let mut path = Vec::new();
    while let Some((key, value)) = table.into_iter().next() {
        path.push(key);
        table = match value {
            toml::Value::Table(inner) => inner,
            _ => break,
        };
    }
    Some(path)
}

fn set(blocks: &mut Vec<Block>, entry: &LockEntry, end: &str) {
    let same = |key: &str| key.replace('-', "_") == entry.key.replace('-', "_");
    let key_of = |block: &Block| match block.path.as_slice() {
        [section, key] if section == SECTION => Some(key.clone()),
        _ => None,
    };
    let known = blocks
        .iter()
        .position(|block| key_of(block).is_some_and(|key| same(&key)));
    if let Some(block) = known.map(|at| &mut blocks[at]) {
        let head = with_end(block.lines.remove(0), end);
        let kept = block.lines.drain(..).filter(|line| !is_of_ours(line));
        let kept: Vec<_> = kept.collect();
        block.lines.push(head);
        block.lines.extend(lines(entry, end));
        block.lines.extend(kept);
        return;
    }
    // Entries are sorted by name, as kpm does. A table inside an entry belongs to the entry before it.
    let after = blocks
        .iter()
        .position(|block| key_of(block).is_some_and(|key| key > entry.key));
    let at = after.unwrap_or(blocks.len());
    if let Some(last) = at
        .checked_sub(1)
        .and_then(|before| blocks[before].lines.last_mut())
    {
        *last = with_end(std::mem::take(last), end);
    }
    let path = vec![SECTION.to_owned(), entry.key.clone()];
    let head = format!("  [{SECTION}.{}]{end}", bare_or_quoted(&entry.key));
    let lines = std::iter::once(head).chain(lines(entry, end)).collect();
    blocks.insert(at, Block { path, lines });
}

fn lines<'a>(entry: &'a LockEntry, end: &'a str) -> impl Iterator<Item = String> + 'a {
    let fields = entry.fields.iter();
    fields.map(move |(key, value)| format!("    {key} = {}{end}", quoted(value)))
}

fn is_of_ours(line: &str) -> bool {
    let key = line.split_once('=').map(|(key, _)| key.trim());
    key.is_some_and(|key| KEYS.contains(&key))
}

/// Returns a line with a line end, so that another line can follow it.
fn with_end(line: String, end: &str) -> String {
    if line.is_empty() || line.ends_with('\n') {
        line
    } else {
        line + end
    }
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        quoted(key)
    }
}

/// Formats a TOML basic string. JSON has the same escapes, except that it leaves one control character unescaped.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// Returns true if two texts differ in nothing but these entries.
fn is_updated(before: &str, after: &str, entries: &[LockEntry]) -> bool {
    let parse = |text: &str| text.trim_start_matches('\u{feff}').parse::<toml::Table>().ok();
    let (Some(mut wanted), Some(found)) = (parse(before), parse(after)) else {
        return false;
    };
    let section = wanted
        .entry(SECTION)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let Some(section) = section.as_table_mut() else {
        return false;
    };
    for entry in entries {
        let same = |key: &String| key.replace('-', "_") == entry.key.replace('-', "_");
        let key = section.keys().find(|key| same(key)).cloned();
        let key = key.unwrap_or_else(|| entry.key.clone());
        let table = section
            .entry(key)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let Some(table) = table.as_table_mut() else {
            return false;
        };
        for key in KEYS {
            table.remove(key);
        }
        for (key, value) in &entry.fields {
            table.insert((*key).to_owned(), toml::Value::String(value.clone()));
        }
    }
    wanted == found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, sum: &str) -> LockEntry {
        LockEntry {
            key: key.to_owned(),
            fields: vec![("name", key.to_owned()), ("sum", sum.to_owned())],
        }
    }

    /// As kpm 0.9 writes the file: tables by name, indented, without empty lines.
    const KPM: &str = "[dependencies]\n  [dependencies.b]\n    name = \"b\"\n    full_name = \"b_1\"\n    version = \"1\"\n  [dependencies.d]\n    name = \"d\"\n    sum = \"4\"\n";

    #[test]
    fn a_new_file_has_the_form_of_the_official_tools() {
        for empty in ["", "\n"] {
            let made = update(empty, &[entry("b", "2"), entry("a-x", "1")]).unwrap();
            assert_eq!(
                made.trim_start_matches('\n'),
                "[dependencies]\n  [dependencies.a-x]\n    name = \"a-x\"\n    sum = \"1\"\n  [dependencies.b]\n    name = \"b\"\n    sum = \"2\"\n"
            );
        }
        let odd = update("", &[entry("a.b", "\"\u{7f}\n")]).unwrap();
        assert!(odd.contains("[dependencies.\"a.b\"]"), "{odd}");
    }

    #[test]
    fn entries_are_added_by_name_and_replaced_and_the_others_keep_their_bytes() {
        let made = update(KPM, &[entry("a", "1"), entry("c", "3"), entry("e", "5")]).unwrap();
        let parts: Vec<_> = made
            .match_indices("  [dependencies.")
            .map(|(at, _)| &made[at + 16..at + 17])
            .collect();
        assert_eq!(parts, ["a", "b", "c", "d", "e"]);
        for part in KPM.split("  [").skip(1) {
            assert!(made.contains(part), "{part}");
        }
        assert_eq!(update(KPM, &[]).unwrap(), KPM);
        // The same once more changes nothing.
        assert_eq!(update(&made, &[entry("c", "3")]).unwrap(), made);
        let replaced = update(KPM, &[entry("b", "9")]).unwrap();
        assert_eq!(
            replaced,
            KPM.replace(
                "    full_name = \"b_1\"\n    version = \"1\"\n",
                "    sum = \"9\"\n"
            )
        );
    }

    /// Comments, keys of others, tables inside an entry, other line ends and no last line end.
    #[test]
    fn what_others_wrote_stays() {
        let others = "# ours\r\n[dependencies.my_lib]\r\n# why\r\nsum = \"old\"\r\nbinaries = { linux-amd64 = \"sha256:1\" }\r\n[dependencies.my_lib.more]\r\nx = 1";
        let made = update(others, &[entry("my-lib", "new"), entry("z", "26")]).unwrap();
        assert_eq!(
            made,
            "# ours\r\n[dependencies.my_lib]\r\n    name = \"my-lib\"\r\n    sum = \"new\"\r\n# why\r\nbinaries = { linux-amd64 = \"sha256:1\" }\r\n[dependencies.my_lib.more]\r\nx = 1\r\n  [dependencies.z]\r\n    name = \"z\"\r\n    sum = \"26\"\r\n"
        );
    }

    #[test]
    fn another_form_is_refused_and_not_damaged() {
        for other in [
            "dependencies = { a = { sum = \"1\" } }\n",
            "[dependencies]\na = { sum = \"1\" }\n",
            "[dependencies]\na.sum = \"1\"\n",
            "[dependencies.a]\nsum = \"\"\"\n[dependencies.b]\n\"\"\"\n",
        ] {
            let refused = update(other, &[entry("a", "2")]);
            assert!(
                refused.is_err_and(|why| why.contains("delete the file")),
                "{other}"
            );
        }
    }
}
