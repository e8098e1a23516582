//! Quick actions: GitLab executes a line such as `/merge` or `/approve` in a description or a note, with the
//! permissions of the token's account.

/// Returns a text without quick actions, for a description or a note: a line that begins with `/` gets a leading
/// space, which Markdown does not show. Like GitLab, this ignores carriage returns at the start of a line.
pub(super) fn disarmed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim_start_matches('\r').starts_with('/') {
            out.push(' ');
        }
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_begins_with_a_command() {
        assert_eq!(disarmed("/merge"), " /merge");
        assert_eq!(disarmed("a\n/approve\nb"), "a\n /approve\nb");
        for hostile in [
            "\r/merge",
            "a\n\r\r/merge\r\n",
            "```\n/x\n```\n/approve",
            "//merge",
        ] {
            let text = disarmed(hostile).replace('\r', "");
            assert!(!text.lines().any(|line| line.starts_with('/')), "{text:?}");
        }
        let harmless = "<!-- konverge:v1 -->\na /merge\n  - b/c\n";
        assert_eq!(disarmed(harmless), harmless);
    }
}
