//! The paths of pages, relative to the root of the site. A name becomes a path segment that is safe as a file name,
//! as a key of a store and in a URL: letters, digits and `._-` stay, `@` replaces a slash, `=XX` any other byte.

use std::fmt::Write as _;

use crate::StackOrder;
use konverge_base::model::{Digest, StackId};

/// The maximum length of a path segment in bytes.
const LONGEST: usize = 200;

/// The overview page.
pub const OVERVIEW: &str = "index.html";
/// The search page.
pub const SEARCH: &str = "search.html";
/// The style sheet.
pub const STYLE: &str = "portal.css";
/// The name of the script that the pages load.
pub const SCRIPT: &str = "portal.js";
/// The search data of all stacks, for the static site.
pub const SEARCH_DATA: &str = "search.js";

/// The table of all stacks by project.
pub const PROJECTS: &str = "by-project.html";
/// The page of rollouts.
pub const ROLLOUTS: &str = "rollouts.html";
/// The page of trends.
pub const TRENDS: &str = "trends.html";
/// The page of permissions.
pub const PERMISSIONS: &str = "permissions.html";
/// The page of the audit log in `konverge serve`.
pub const AUDIT: &str = "audit.html";
/// The audit log as CSV.
pub const AUDIT_CSV: &str = "audit.csv";
/// The page of `konverge serve` to stop all applies.
pub const FREEZE: &str = "freeze.html";
/// The page of `konverge serve` about the person who is signed in.
pub const ACCOUNT: &str = "account.html";
/// The page of a stack's operations, in the stack's folder.
pub const OPERATIONS: &str = "operations.html";

/// Converts a name to a path segment.
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

/// Returns the folder with the pages of a stack.
pub fn stack_folder(stack: &StackId) -> String {
    format!("stacks/{}", slug(stack.as_str()))
}

/// Returns the path of a stack's page.
pub fn stack(stack: &StackId) -> String {
    format!("{}/index.html", stack_folder(stack))
}

/// Returns the file name of the page with a difference of two serials, in the stack's folder.
pub fn difference(from: u64, to: u64) -> String {
    format!("{from}-{to}.html")
}

/// Returns the path of the table of all stacks in an order.
pub fn stacks(order: StackOrder) -> String {
    match order {
        StackOrder::Project => PROJECTS.to_owned(),
        order => format!("by-{}.html", order.key()),
    }
}

/// Returns the path of the page that lists the resources of a kind.
pub fn kind(kind: &str) -> String {
    format!("kinds/{}.html", slug(kind))
}

/// Returns true if a path has the form that this module writes. Such a path cannot leave the root.
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
