//! The name of a workspace: its file name without `.yaml`.

/// Returns true if a text can be the name of a workspace file.
pub fn is_workspace_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_plain_file() {
        for name in ["prod", "eu-1", "a_b.c", "7"] {
            assert!(is_workspace_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "..\\x",
            "dev blue",
            "prod (old)",
            "é",
        ] {
            assert!(!is_workspace_name(name), "{name}");
        }
    }
}
