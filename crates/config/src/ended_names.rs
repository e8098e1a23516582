//! `policy.ended_names`: the earlier names (folders, identities) of a stack whose policies no longer apply to it.

use super::{
    config_problem::{Problem, problem},
    stack_glob::{StackGlob, glob_problem},
    types::{EndedNameConfig, PolicyConfig},
};
use konverge_base::model::{RepoPath, other_names::OtherNames};

impl PolicyConfig {
    /// Returns the other names of the stack in a folder whose policies still apply: those that `policy.ended_names`
    /// does not end.
    pub fn standing_names(&self, folder: &RepoPath, known_as: &OtherNames) -> OtherNames {
        standing_names(&self.ended_names, folder, known_as)
    }

    pub(super) fn ended_names_problem(&self) -> Option<Problem> {
        let of_line = |line: &EndedNameConfig| {
            let hint = "write a folder or an identity, such as `appops/shop/prod`";
            let mut globs = [&line.stacks, &line.was].into_iter();
            let wrong_glob = globs.find_map(|glob| glob_problem("policy.ended_names", glob, hint));
            wrong_glob.or_else(|| {
                line.reason.trim().is_empty().then_some(())?;
                problem(format!(
                    "policy.ended_names: the line for `{}` has no reason",
                    line.was.escape_debug()
                ))
                .hint("give a reason: why the policies for this name are not needed any more")
            })
        };
        self.ended_names.iter().find_map(of_line)
    }
}

/// Returns the other names of the stack in a folder whose policies still apply: those that none of `lines` ends.
pub fn standing_names(lines: &[EndedNameConfig], folder: &RepoPath, known_as: &OtherNames) -> OtherNames {
    let mut names = known_as.clone();
    // A pull request chooses the identities of stacks, so a line of the configuration is matched with the folder only.
    let is_for = |line: &&EndedNameConfig| {
        StackGlob::compile(&line.stacks).is_some_and(|glob| glob.is_match(folder.as_str()))
    };
    let lines = lines.iter().filter(is_for);
    for was in lines.filter_map(|line| StackGlob::compile(&line.was)) {
        names.ids.retain(|id| !was.is_match(id.as_str()));
        names.folders.retain(|folder| !was.is_match(folder.as_str()));
    }
    names
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use konverge_base::model::{RepoPath, other_names::OtherNames};

    #[test]
    fn a_line_ends_names_of_the_stacks_in_its_folders() {
        let config = |lines: &str| Config::parse(&format!("policy: {{ended_names: [{lines}]}}\n"));
        let names = OtherNames {
            ids: ["shop/prod".parse().unwrap(), "shop/dev".parse().unwrap()].into(),
            folders: [RepoPath::normalize("appops/shop/prod").unwrap()].into(),
        };
        let standing = |lines: &str, folder: &str| {
            let policy = config(lines).unwrap().policy;
            let standing = policy.standing_names(&RepoPath::normalize(folder).unwrap(), &names);
            standing.iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let line = "{stacks: 'apps/store/*', was: '**/prod', reason: renamed}";
        assert_eq!(standing(line, "apps/store/prod"), ["shop/dev"]);
        assert_eq!(standing(line, "apps/other/prod").len(), 3);
        assert_eq!(
            standing("{stacks: 'store/prod', was: '**', reason: x}", "apps/store/prod").len(),
            3
        );
        for (line, words) in [
            ("{stacks: 'a[', was: b, reason: x}", "is not a glob"),
            ("{stacks: a, was: 'b[', reason: x}", "is not a glob"),
            ("{stacks: a, was: b, reason: ' '}", "has no reason"),
            ("{stacks: a, was: b}", "reason"),
        ] {
            let refused = config(line).expect_err(line).to_string();
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }
}
