//! The names of what is moved.

use konverge_base::model::Digest;

/// The longest name of a namespace, of a label of a host, and of most objects.
const LONGEST: usize = 63;

/// A name with the run at its end, at most 63 characters long. Names that differ give names that differ.
pub(super) fn suffixed(name: &str, run: &str) -> String {
    let whole = format!("{name}-{run}");
    if whole.len() <= LONGEST {
        return whole;
    }
    let digest = Digest::of_bytes(name.as_bytes()).to_string();
    let end = format!("-{}-{run}", &digest[..8]);
    let kept: String = name.chars().take(LONGEST - end.len()).collect();
    format!("{}{end}", kept.trim_end_matches(['-', '.']))
}
