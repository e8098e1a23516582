//! The names and descriptions of Konverge's commit statuses. A branch rule should require `konverge/preview`;
//! `konverge/apply` must not be required, because an apply runs only after the merge. A preview with shards sets
//! one more status for each shard.

use konverge_base::model::Shard;

/// The name of the status of an apply.
pub const APPLY: &str = "konverge/apply";

/// Returns the name of the status of an apply: of one environment, or of all stacks.
pub fn apply_of(environment: Option<&str>) -> String {
    match environment {
        Some(name) => format!("{APPLY} ({name})"),
        None => APPLY.to_owned(),
    }
}

/// Returns the name of the status of a preview, or of one shard of it. `into` is the target branch if it is not the
/// default branch. The name must differ then: the same commit may be the head of pull requests into both branches,
/// and a preview without a cluster must not satisfy the required status.
pub fn preview_of(share: Option<Shard>, into: Option<&str>) -> String {
    let share = share.map(|share| format!(" {share}")).unwrap_or_default();
    let into = into.map(|branch| format!(" into {branch}")).unwrap_or_default();
    format!("konverge/preview{share}{into}")
}

/// The maximum length of a description. GitHub refuses a longer one (422).
const DESCRIPTION: usize = 140;

/// Shortens a description of a status to one line of at most 140 UTF-16 units.
pub fn one_line(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if line.encode_utf16().count() <= DESCRIPTION {
        return line;
    }
    let mut units = 0;
    let mut short: String = line
        .chars()
        .take_while(|c| {
            units += c.len_utf16();
            units < DESCRIPTION
        })
        .collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_fit() {
        assert_eq!(one_line("a\nb"), "a b");
        for text in ["x".repeat(200), "𝄞".repeat(200), "x".repeat(140)] {
            assert!(one_line(&text).encode_utf16().count() <= DESCRIPTION);
        }
        assert_eq!(one_line(&"x".repeat(140)), "x".repeat(140));
    }
}
