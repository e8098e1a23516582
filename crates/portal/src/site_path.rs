//! The addresses of the pages, relative to the root of the site. Names become parts of a path that are safe as a file
//! name, as a key of a store and in a URL: letters, digits and `._-`; `@` stands for a slash, `=XX` for any other byte.

use std::fmt::Write as _;

use crate::StackOrder;
use konverge_base::model::{Digest, StackId};

/// The longest name of a folder, in bytes.
const LONGEST: usize = 200;

/// The overview.
pub const OVERVIEW: &str = "index.html";
/// The search.
pub const SEARCH: &str = "search.html";
/// The styles.
pub const STYLE: &str = "portal.css";
/// The script.
pub const SCRIPT: &str = "portal.js";
/// The names of all stacks, for the search of the static site.
pub const SEARCH_DATA: &str = "search.js";

/// The table of all stacks by project.
pub const PROJECTS: &str = "by-project.html";
/// The rollouts.
pub const ROLLOUTS: &str = "rollouts.html";
/// Four numbers over time.
pub const TRENDS: &str = "trends.html";
/// Who may do what.
pub const PERMISSIONS: &str = "permissions.html";
/// The audit of `konverge serve`.
pub const AUDIT: &str = "audit.html";
/// The audit for a spreadsheet.
pub const AUDIT_CSV: &str = "audit.csv";
/// The page of `konverge serve` that stops all applies.
pub const FREEZE: &str = "freeze.html";
/// The page of `konverge serve` with the person's own roles.
pub const ACCOUNT: &str = "account.html";
/// The page of a stack's operations, in the folder of the stack.
pub const OPERATIONS: &str = "operations.html";

/// A name as one part of a path.
pub fn slug(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let only_dots = name.bytes().all(|byte| byte == b'.');
    for byte in name.bytes() {
        match byte {
            b'/' => text.push('@'),
            b'.' if only_dots => text.push_str("=2E"),
            b'.' | b'_' | b'-' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "={byte:02X}");
            }
        }
    }
    if text.is_empty() || text.len() > LONGEST {
        let digest = Digest::of_bytes(name.as_bytes()).to_string();
        text.truncate(LONGEST - 20);
        let _ = write!(text, "=-{}", &digest[..16]);
    }
    text
}

/// The folder of a stack's pages.
pub fn stack_folder(stack: &StackId) -> String {
    format!("stacks/{}", slug(stack.as_str()))
}

/// The page of a stack.
pub fn stack(stack: &StackId) -> String {
    format!("{}/index.html", stack_folder(stack))
}

/// The name of the page with the difference of two serials, in the folder of the stack.
pub fn difference(from: u64, to: u64) -> String {
    format!("{from}-{to}.html")
}

/// The table of all stacks in an order.
pub fn stacks(order: StackOrder) -> String {
    match order {
        StackOrder::Project => PROJECTS.to_owned(),
        order => format!("by-{}.html", order.key()),
    }
}

/// The page that lists the resources of a kind.
pub fn kind(kind: &str) -> String {
    format!("kinds/{}.html", slug(kind))
}

/// Returns true if a path is of the form that this module writes, so that it stays below the root.
pub fn is_own(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.bytes().all(|byte| byte == b'.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-@=".contains(&byte))
    };
    path.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_one_part_of_a_path_and_no_two_names_the_same() {
        for (name, expected) in [
            ("shop/prod", "shop@prod"),
            ("a/b/c", "a@b@c"),
            ("a@b/c", "a=40b@c"),
            ("..", "=2E=2E"),
            ("ä b", "=C3=A4=20b"),
            ("a=2E", "a=3D2E"),
            ("apps/v1:Deployment", "apps@v1=3ADeployment"),
        ] {
            assert_eq!(slug(name), expected);
            assert!(is_own(&format!("stacks/{}", slug(name))), "{name}");
        }
        let (long, longer) = ("x".repeat(300), "x".repeat(301));
        assert!(slug(&long).len() <= LONGEST && slug(&long) != slug(&longer));
        assert!(is_own(&slug("")) && slug("") != slug("="));
    }

    #[test]
    fn a_path_that_leaves_the_site_is_not_our_own() {
        for path in [
            "../x",
            "/etc/passwd",
            "a//b",
            "a/../b",
            "a\\b",
            "a b",
            "",
            "c:/x",
            "a/.",
        ] {
            assert!(!is_own(path), "{path}");
        }
        assert!(is_own("stacks/shop@prod/3-4.html"));
    }
}
