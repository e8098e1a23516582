//! Decides which stacks may read the outputs of other stacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, stack_glob::StackGlob};
use konverge_base::model::stack::Stack;

/// The stacks that may read outputs of other stacks. Stacks of one project and one environment always may.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputsConfig {
    /// Further pairs of stacks.
    pub allow: Vec<OutputRule>,
}

/// Stacks whose outputs others may read.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputRule {
    /// A glob of the folders of those that publish: `appops/network/*`.
    pub from: String,
    /// A glob of the folders of those that read: `appops/*/prod`.
    pub to: String,
}

impl Config {
    /// Returns true if a stack may read the outputs of another one: a rule matches both folders, or both belong to the
    /// same project and environment. A production stack never shares an environment with other stacks.
    pub fn may_read_outputs(&self, from: &Stack, to: &Stack) -> bool {
        let has = |glob: &str, stack: &Stack| {
            StackGlob::compile(glob).is_some_and(|glob| glob.is_match(stack.folder.as_str()))
        };
        let mut rules = self.outputs.allow.iter();
        if rules.any(|rule| has(&rule.from, from) && has(&rule.to, to)) {
            return true;
        }
        let (rules, production) = (self.rules(), self.production_folders());
        let environment = |stack: &Stack| {
            let named = rules.for_place(&stack.id, &stack.folder).environment;
            (named, production.contains(&stack.folder))
        };
        // A pull request chooses the names of projects, so the folders of the projects are compared.
        from.project_folder == to.project_folder && environment(from) == environment(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath, StackId,
        stack::{CompileSetup, NamedBy},
        stack_output::StackReads,
    };

    fn stack([id, folder]: [&str; 2]) -> Stack {
        let id: StackId = id.parse().unwrap();
        let folder = RepoPath::normalize(folder).unwrap();
        Stack {
            names: id.clone(),
            id,
            earlier_names: None,
            named_by: NamedBy::Names,
            manifest: folder.child("stack.yaml"),
            project_folder: folder.parent().unwrap(),
            folder,
            compile: Ok(CompileSetup::default()),
            cluster: None,
            kubeconfig: None,
            reads: StackReads::new(),
        }
    }

    fn may(rules: &str, from: [&str; 2], to: [&str; 2]) -> bool {
        let config = Config::parse(rules).unwrap();
        config.may_read_outputs(&stack(from), &stack(to))
    }

    const DATABASE: [&str; 2] = ["shop/database", "appops/shop/database"];

    #[test]
    fn without_a_rule_only_stacks_of_one_project_and_one_environment_read() {
        assert!(may("", DATABASE, ["shop/web", "appops/shop/web"]));
        assert!(
            !may("", DATABASE, ["pay/web", "appops/pay/web"]),
            "another project"
        );
        assert!(
            !may("", DATABASE, ["shop/web", "elsewhere/shop/web"]),
            "a project that took the name"
        );
        assert!(
            !may("", DATABASE, ["shop/prod", "appops/shop/prod"]),
            "production"
        );
        let rules = "stacks: [{match: 'appops/shop/database', environment: data}]\n";
        assert!(
            !may(rules, DATABASE, ["shop/web", "appops/shop/web"]),
            "another environment"
        );
    }

    #[test]
    fn a_rule_goes_by_folders_and_in_one_direction() {
        let rules = "outputs: {allow: [{from: 'appops/shop/*', to: 'appops/pay/*'}]}\n";
        let pay = ["pay/web", "appops/pay/web"];
        assert!(may(rules, DATABASE, pay));
        assert!(!may(rules, pay, DATABASE));
        // An identity is chosen by a pull request: it grants nothing.
        assert!(!may(rules, DATABASE, ["appops/pay/web", "elsewhere/web"]));
    }
}
