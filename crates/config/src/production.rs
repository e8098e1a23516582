//! Determines the production stacks: those in the folders that `production` lists, or else those whose folder name says
//! so.

use super::{Config, stack_glob::StackGlob};
use konverge_base::model::RepoPath;

/// The folders of production, with compiled globs.
pub struct ProductionFolders {
    globs: Vec<Option<StackGlob>>,
}

impl Config {
    /// Returns the folders of production.
    pub fn production_folders(&self) -> ProductionFolders {
        ProductionFolders {
            globs: self
                .production
                .iter()
                .map(|glob| StackGlob::compile(glob))
                .collect(),
        }
    }
}

impl ProductionFolders {
    /// Returns true if a stack of this folder is production.
    pub fn contains(&self, folder: &RepoPath) -> bool {
        let folder = folder.as_str();
        if self.globs.is_empty() {
            return folder.split('/').any(says_production);
        }
        self.globs.iter().flatten().any(|glob| glob.is_match(folder))
    }
}

/// Returns true if a name contains the word `prod` or `production`, and the word before does not negate it
/// (`non-prod`).
fn says_production(name: &str) -> bool {
    let name = name.to_lowercase();
    let words: Vec<_> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let is_named = |at: usize| matches!(words[at], "prod" | "production");
    let is_denied = |at: usize| at > 0 && matches!(words[at - 1], "pre" | "non" | "no" | "not");
    (0..words.len()).any(|at| is_named(at) && !is_denied(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_production(config: &str, folder: &str) -> bool {
        let config = Config::parse(config).unwrap();
        let folder = RepoPath::normalize(folder).unwrap();
        config.production_folders().contains(&folder)
    }

    #[test]
    fn without_a_key_production_is_a_word_of_the_folder() {
        for folder in [
            "a/prod",
            "a/Production",
            "a/prod-eu",
            "eu_prod/a",
            "prod/shop/web",
            "a/cn.prod.1",
        ] {
            assert!(is_production("version: 1\n", folder), "{folder}");
        }
        for folder in [
            "a/dev",
            "a/preprod",
            "a/pre-prod",
            "a/non-production",
            "product/a",
            "a/reproduce",
        ] {
            assert!(!is_production("version: 1\n", folder), "{folder}");
        }
    }

    #[test]
    fn the_key_names_the_folders_and_nothing_else() {
        let config = "production: ['appops/*/live', 'appops/pay/**']\n";
        assert!(is_production(config, "appops/shop/live"));
        assert!(is_production(config, "appops/pay/eu/one"));
        assert!(!is_production(config, "appops/shop/prod"));
        assert!(Config::parse("production: ['a[']\n").is_err());
    }
}
