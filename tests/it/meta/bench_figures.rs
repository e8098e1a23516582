//! `scripts/bench-figures` names what got worse, and says at which commit a section was measured.

use std::fs;

use crate::{meta::docs::root, support::process::Konverge};

const BEFORE: &str = "# Figures

<!-- bench:one -->
| what | objects | ours | ratio | bound |
|---|---|---|---|---|
| apply | 1000 | 1.00 s | 1.7× as fast | 5 |
| apply | 5000 | 5.00 s | 1.14× as long | 25 |
| start | | 10 ms | | 10 |
| a tick | | 1 ms | | 10 |

Measured at commit old.
<!-- /bench:one -->

<!-- bench:two -->
| what | best |
|---|---|
| set | 100 |
<!-- /bench:two -->
";

#[test]
fn a_row_that_got_worse_is_named_with_the_commit_of_its_section() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.md"), folder.path().join("new.md"));
    fs::write(&old, BEFORE).unwrap();
    // Worse: the second time, and a speed that fell. As before or too little: 10 to 12 ms, a tick of a clock, a bound.
    let after = BEFORE
        .replace("1.7× as fast | 5", "1.2× as fast | 50")
        .replace("5.00 s | 1.14", "6.10 s | 1.15")
        .replace("10 ms", "12 ms")
        .replace("| 1 ms", "| 2 ms")
        .replace("\nMeasured at commit old.\n", "");
    fs::write(&new, after).unwrap();
    let named = Konverge::of(
        &root().join("scripts/bench-figures"),
        ["--commit", "0123abc", "--old"],
    )
    .arg(&old)
    .arg("--new")
    .arg(&new);
    assert_eq!(
        named.run().expect(0).stdout,
        "worse: one: apply, 1000: ratio was 1.7 ×, is 1.2 × (1.42 times as bad)\n\
         worse: one: apply, 5000: ours was 5 s, is 6.1 s (1.22 times as bad)\n\
         1 sections measured at 0123abc, 2 figures more than 20 % worse than before\n"
    );
    let text = fs::read_to_string(&new).unwrap();
    assert_eq!(text.matches("Measured at commit").count(), 1, "{text}");
    assert!(
        text.contains("| 10 |\n\nMeasured at commit 0123abc.\n<!-- /bench:one -->"),
        "{text}"
    );
}
