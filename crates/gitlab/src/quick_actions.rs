//! Quick actions: GitLab executes a line of a description or a note that begins with `/merge` or `/approve`, in the name of the
//! account of the token.

/// Returns a text for a description or a note without quick actions: a line with a `/` at its start gets a space before it, which
/// Markdown does not show. GitLab ignores carriage returns when it looks for the start of a line.
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
