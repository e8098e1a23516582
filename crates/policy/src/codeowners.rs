//! GitHub's CODEOWNERS: patterns as in gitignore, but without `!` and character ranges; the last match wins.
//! <https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners>

use globset::{GlobBuilder, GlobMatcher};

/// The rules of a CODEOWNERS file, in their order.
#[derive(Debug, Clone, Default)]
pub struct CodeOwners {
    rules: Vec<(Vec<GlobMatcher>, Vec<String>)>,
}

impl CodeOwners {
    /// The word that stands for all code owners in the `reviewers` of a policy.
    pub const NAME: &'static str = "CODEOWNERS";

    /// The files in which GitHub looks for code owners. It uses the first one that exists.
    pub const PLACES: [&'static str; 3] = [".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"];

    /// Parses a CODEOWNERS file. Lines that GitHub would not understand are skipped, as GitHub does.
    pub fn read(text: &str) -> Self {
        let rules = text.lines().filter_map(rule).collect();
        Self { rules }
    }

    /// Returns the owners of a path (`@user`, `@org/team`, or an address), without the leading `@`.
    pub fn owners(&self, path: &str) -> &[String] {
        self.rules
            .iter()
            .rev()
            .find(|(globs, _)| globs.iter().any(|glob| glob.is_match(path)))
            .map_or(&[], |(_, owners)| owners)
    }
}

fn rule(line: &str) -> Option<(Vec<GlobMatcher>, Vec<String>)> {
    let line = line.split(" #").next().unwrap_or_default().trim();
    if line.starts_with(['#', '!']) {
        return None;
    }
    let mut words = line.split_whitespace();
    let pattern = words.next()?;
    if pattern.contains(['[', ']']) {
        return None;
    }
    let owners = words.map(|w| w.trim_start_matches('@').to_owned()).collect();
    let globs: Option<Vec<_>> = globs(pattern).iter().map(|glob| matcher(glob)).collect();
    Some((globs?, owners))
}

/// Translates a pattern into globs over whole paths. A pattern without a slash, except at its end, matches at any
/// depth. A pattern that matches a folder means the content of the folder, unless the pattern ends in `/*`.
fn globs(pattern: &str) -> Vec<String> {
    let anchored = pattern.trim_end_matches('/').contains('/');
    let body = pattern.trim_start_matches('/').trim_end_matches('/');
    let base = if anchored {
        body.to_owned()
    } else {
        format!("**/{body}")
    };
    // A pattern may name a file or a folder, unless its end decides. `docs/*` matches files directly in the folder
    // only.
    if pattern.ends_with('/') {
        vec![format!("{base}/**")]
    } else if pattern.ends_with("/*") {
        vec![base]
    } else {
        vec![base.clone(), format!("{base}/**")]
    }
}

fn matcher(glob: &str) -> Option<GlobMatcher> {
    let glob = glob.replace('{', "\\{").replace('}', "\\}");
    Some(
        GlobBuilder::new(&glob)
            .literal_separator(true)
            .build()
            .ok()?
            .compile_matcher(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_wins() {
        let owners = CodeOwners::read(
            "# all\n*       @acme/everybody\n*.k @acme/kcl # models\n/appops/ @acme/apps\nappops/shop/prod @ada @acme/infra\n/docs/* @docs\n/appops/open/\n",
        );
        let of = |path: &str| owners.owners(path).join(" ");
        assert_eq!(of("README.md"), "acme/everybody");
        assert_eq!(of("base/base.k"), "acme/kcl");
        assert_eq!(of("appops/shop/dev/main.k"), "acme/apps");
        assert_eq!(of("appops/shop/prod/main.k"), "ada acme/infra");
        assert_eq!(of("appops/shop/prod"), "ada acme/infra");
        assert_eq!(of("docs/a.md"), "docs");
        assert_eq!(of("docs/deep/a.md"), "acme/everybody");
        assert_eq!(
            of("appops/open/main.k"),
            "",
            "a line without owners takes them away"
        );
    }

    #[test]
    fn lines_that_github_skips_own_nothing() {
        let owners = CodeOwners::read("* @all\n\n#a @comment\n!b @negated\nc[d] @range\n  \n*.{x} @braces\n");
        for path in ["#a", "!b", "c[d]", "cd", "a.x"] {
            assert_eq!(owners.owners(path), ["all"], "{path}");
        }
        assert_eq!(owners.owners("a.{x}"), ["braces"]);
    }
}
