//! `konverge preview --output markdown` is the comment, with what policies say and what a merge grants.

use crate::support::{konfigs, process::Konverge};

const RULE: &str = "package words\n\n\
    deny_two contains {\"msg\": \"two is not a word\", \"path\": \"/data/word\"} if input.data.word == \"two\"\n";

#[test]
fn the_markdown_has_findings_and_changed_permissions() {
    let repository = konfigs::one_stack();
    let config = |approvals: u32| {
        format!(
            "policy:\n  approvals: {approvals}\n  sets: [{{name: words, path: policy, input: objects, enforce: advise}}]\n"
        )
    };
    repository
        .write("policy/words.rego", RULE)
        .write("konverge.yaml", config(2))
        .commit("Rules");
    repository
        .replace("shop/dev/main.k", "one", "two")
        .write("konverge.yaml", config(1));
    let preview = |output: &str| {
        let arguments = ["preview", "--base", "HEAD", "--live", "never", "--output", output];
        let run = Konverge::new(arguments).dir(repository.path()).with_kcl();
        run.env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
            .run()
            .expect(0)
            .stdout
    };
    let comment = preview("markdown");
    for part in [
        "two is not a word",
        // The rules before the merge and after it.
        "0 of 1 required approvals",
        "0 of 2 required approvals",
        "This merge changes 1 setting of `konverge.yaml` that grants permissions",
        "| `policy.approvals` | `2` | `1` | all |",
    ] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    assert!(preview("html").contains("two is not a word"));
}
