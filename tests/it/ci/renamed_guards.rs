//! Guards follow the thing, not its name: a stack that gets another folder, project or identity, or all of them, keeps
//! the sets, approvals and workflows of its earlier names. GitHub is played by the fake, the API server and Terraform
//! are real.

use serde_json::Value;

use crate::support::{
    ci_stage::{Ran, Stage},
    github::DispatchableWorkflow,
    terraform, tiny_monorepo,
};

const RULES: &str = "package main\n\ndeny contains sprintf(\"%s holds a forbidden value\", [r.id]) if {\n\tsome r in input.resources\n\tis_bad(r.after)\n}\n\nis_bad(after) if after.data.value == \"bad\"\n\nis_bad(after) if after.input == \"bad\"\n";

/// How a stack gets another name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rename {
    Folder,
    Project,
    Identity,
    All,
    /// All, and the objects have other names: only git knows that it is the same.
    AllAndObjects,
}

/// What a stack consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Runtime {
    Kubernetes,
    Terraform,
}

struct Case {
    rename: Rename,
    runtime: Runtime,
    name: String,
}

impl Case {
    fn new(play: &str, rename: Rename, runtime: Runtime) -> Self {
        let name = format!("g-{play}-{rename:?}-{runtime:?}").to_lowercase();
        Self {
            rename,
            runtime,
            name,
        }
    }

    fn config(&self, more: &str, identity: bool) -> String {
        let named = if identity {
            format!(
                "- {{match: 'appops/{0}/prod', identity: other-{0}/prod}}\n",
                self.name
            )
        } else {
            String::new()
        };
        format!(
            "terraform: {{binary: '{}'}}\npolicy:\n  sets:\n  - {{name: by-folder, path: ops/policy, stacks: 'appops/g-*/prod'}}\n  - {{name: by-identity, path: ops/policy, stacks: 'g-*/prod'}}\n{more}\
             apply: {{hooks: {{workflows: [{{when: pre, stacks: 'g-*/prod', workflow: backup.yml}}]}}}}\n\
             stacks:\n- {{match: 'appops/g-*/prod', policy: {{approvals: 1}}}}\n{named}",
            terraform::binary().display()
        )
    }

    fn object(&self) -> String {
        match self.rename {
            Rename::AllAndObjects => format!("{}-other", self.name),
            _ => self.name.clone(),
        }
    }

    /// The program of the stack, by the name of its object.
    fn program(&self, object: &str, value: &str) -> String {
        match self.runtime {
            Runtime::Kubernetes => format!(
                "# The shop window.\n_labels = {{team = \"window\", tier = \"front\"}}\nresources = [{{id = \"v1:ConfigMap:default:{object}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{object}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}}}]\n"
            ),
            Runtime::Terraform => format!(
                "resources = [{{id = \"terraform:builtin:terraform_data:{object}\", type = \"Terraform\", attributes = {{input = \"{value}\"}}}}]\n"
            ),
        }
    }

    /// The names after the change.
    fn id(&self) -> String {
        match self.rename {
            Rename::Folder => format!("{}/prod", self.name),
            _ => format!("other-{}/prod", self.name),
        }
    }

    fn folder(&self) -> String {
        match self.rename {
            Rename::Project | Rename::Identity => format!("appops/{}", self.name),
            _ => format!("apps/{}", self.name),
        }
    }

    /// A stage on which the stack was applied under its first names.
    async fn stage(&self) -> Stage {
        let mut stage = Stage::small(&self.config("", false)).await;
        stage
            .monorepo
            .write("ops/policy/values.rego", RULES)
            .commit("Rules");
        stage.github.world(|world| {
            let token = world.tokens.get_mut("ghs_token").unwrap();
            token.permissions.insert("actions", "write");
            let backup = DispatchableWorkflow {
                conclusion: Some("success"),
                names_inputs: true,
                shown_late: 0,
            };
            world.workflows.insert("backup.yml".to_owned(), backup);
        });
        let (head, _) = stage.reviewed(7, "made", |stage| {
            let id = format!("{}/prod", self.name);
            tiny_monorepo::write_program(&stage.monorepo, &id, &self.program(&self.name, "good"));
        });
        stage.approved_by(7, "grace", &head);
        stage.merge(7, "made").outcome.check(0);
        assert_eq!(backups(&stage), 1);
        stage
    }

    /// Renames the stack in the working tree.
    fn rename(&self, stage: &Stage) {
        let (monorepo, name) = (&stage.monorepo, &self.name);
        if self.folder().starts_with("apps/") {
            monorepo.rename(&format!("appops/{name}"), &format!("apps/{name}"));
        }
        match self.rename {
            Rename::Folder => {}
            Rename::Identity => stage.configure(&self.config("", true)),
            Rename::Project | Rename::All | Rename::AllAndObjects => {
                let file = format!("{}/project.yaml", self.folder());
                monorepo.write(&file, format!("name: other-{name}\n"));
            }
        }
    }

    fn write(&self, stage: &Stage, value: &str) {
        let file = format!("{}/prod/main.k", self.folder());
        stage.monorepo.write(&file, self.program(&self.object(), value));
    }

    /// Whether a value is live under either name.
    async fn is_live(&self, stage: &Stage, value: &str) -> bool {
        if self.runtime == Runtime::Kubernetes {
            return stage.value(&self.object()).await.as_deref() == Some(value);
        }
        let states = stage.states().await;
        for id in [self.id(), format!("{}/prod", self.name)] {
            let state = states.load(&id.parse().unwrap()).await.unwrap();
            let resources = state.into_iter().flat_map(|state| state.state.resources);
            if resources.into_iter().any(|one| one.attributes["input"] == value) {
                return true;
            }
        }
        false
    }
}

fn backups(stage: &Stage) -> usize {
    stage.github.world(|world| world.dispatched.len())
}

fn preview(
    stage: &mut Stage,
    number: u64,
    branch: &str,
    change: impl FnOnce(&Stage),
) -> (String, Vec<Value>) {
    stage.monorepo.checkout("main").branch(branch);
    change(stage);
    let head = stage.monorepo.commit(branch);
    let ran = stage.pull_request(number, branch, "opened");
    (head, findings(&ran))
}

fn findings(ran: &Ran) -> Vec<Value> {
    let text = std::fs::read_to_string(ran.output("result-path")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    result["findings"].as_array().unwrap().clone()
}

/// The finding of a rule for a stack that has these words.
fn assert_found(found: &[Value], verdict: &str, rule: &str, stack: &str, words: &[&str]) {
    let is_it = |finding: &&Value| {
        let message = finding["message"].as_str().unwrap();
        finding["verdict"] == verdict
            && finding["rule"] == rule
            && finding["stack"] == stack
            && words.iter().all(|word| message.contains(word))
    };
    assert!(
        found.iter().any(|finding| is_it(&finding)),
        "{rule} {words:?}: {found:#?}"
    );
}

/// In one pull request: the new names, and the value that the sets deny.
async fn in_one(rename: Rename, runtime: Runtime) {
    let case = Case::new("one", rename, runtime);
    let mut stage = case.stage().await;
    let (head, found) = preview(&mut stage, 8, "renamed", |stage| {
        case.rename(stage);
        case.write(stage, "bad");
    });
    let id = case.id();
    for set in ["by-folder", "by-identity"] {
        let rule = format!("{set}/main.deny");
        assert_found(&found, "deny", &rule, &id, &["holds a forbidden value"]);
    }
    stage.approved_by(8, "grace", &head);
    let merged = stage.merge(8, "renamed");
    assert_ne!(merged.outcome.code, Some(0), "{}", merged.outcome.stdout);
    for again in [merged, stage.again(), stage.again()] {
        let said = &again.outcome.stdout;
        assert!(
            said.contains("holds a forbidden value"),
            "{rename:?} {runtime:?}: {said}"
        );
        assert!(!case.is_live(&stage, "bad").await, "{rename:?} {runtime:?}");
    }
}

/// In two: the new names alone, which the preview explains and an approval lets pass, and then the value.
async fn in_two(rename: Rename, runtime: Runtime) {
    let case = Case::new("two", rename, runtime);
    let mut stage = case.stage().await;
    let (id, name) = (case.id(), &case.name);
    let (head, found) = preview(&mut stage, 8, "renamed", |stage| {
        case.rename(stage);
        case.write(stage, "good");
    });
    let folder = format!("rules for `appops/{name}/prod`, an earlier name of this stack");
    let identity = format!("rules for `{name}/prod`, an earlier name of this stack");
    if case.folder().starts_with("apps/") {
        let guards = [&folder, "the set `by-folder`", "1 approval"];
        assert_found(&found, "warn", "policy.names", &id, &guards);
    }
    if rename != Rename::Folder {
        let guards = [
            &identity,
            "the set `by-identity`",
            "the workflow `backup.yml` (`pre`)",
        ];
        assert_found(&found, "warn", "policy.names", &id, &guards);
    }
    // Terraform's resources move by hand, as the preview says.
    let by_hand = runtime == Runtime::Terraform && rename == Rename::Project;
    if by_hand {
        stage.state(&["move", &format!("{name}/prod"), &id]);
    }
    // A rename alone may change nothing, so that nobody has to approve it.
    let merged = stage.merge(8, "renamed");
    let is_approved = merged.outcome.code == Some(0);
    assert!(!is_approved || by_hand || matches!(rename, Rename::Folder | Rename::Identity));
    if !is_approved {
        let said = &merged.outcome.stdout;
        assert!(said.contains("0 of 1 required approvals"), "{rename:?}: {said}");
        stage.approved_by(8, "grace", &head);
        stage.again();
    }
    stage.again().outcome.check(0);
    assert!(case.is_live(&stage, "good").await);
    let before = backups(&stage);

    let (head, found) = preview(&mut stage, 9, "value", |stage| case.write(stage, "bad"));
    for set in ["by-folder", "by-identity"] {
        let rule = format!("{set}/main.deny");
        assert_found(&found, "deny", &rule, &id, &["holds a forbidden value"]);
    }
    let merged = stage.merge(9, "value");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(said.contains("0 of 1 required approvals"), "{rename:?}: {said}");
    stage.approved_by(9, "grace", &head);
    let again = stage.again();
    again.outcome.check(3);
    let said = &again.outcome.stdout;
    assert!(said.contains("holds a forbidden value"), "{rename:?}: {said}");
    assert!(!case.is_live(&stage, "bad").await);
    assert_eq!(backups(&stage), before);

    // What the sets allow runs the workflow of the earlier name.
    let (head, _) = preview(&mut stage, 10, "allowed", |stage| case.write(stage, "better"));
    stage.approved_by(10, "grace", &head);
    stage.merge(10, "allowed").outcome.check(0);
    assert!(case.is_live(&stage, "better").await);
    assert_eq!(backups(&stage), before + 1);
}

macro_rules! cases {
    ($($name:ident: $play:ident($rename:ident, $runtime:ident);)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $play(Rename::$rename, Runtime::$runtime).await;
        })*
    };
}

cases! {
    a_moved_folder_with_a_denied_value: in_one(Folder, Kubernetes);
    a_moved_folder_then_a_denied_value: in_two(Folder, Kubernetes);
    a_renamed_project_with_a_denied_value: in_one(Project, Kubernetes);
    a_renamed_project_then_a_denied_value: in_two(Project, Kubernetes);
    an_identity_with_a_denied_value: in_one(Identity, Kubernetes);
    an_identity_then_a_denied_value: in_two(Identity, Kubernetes);
    all_names_with_a_denied_value: in_one(All, Kubernetes);
    all_names_then_a_denied_value: in_two(All, Kubernetes);
    all_names_and_objects_with_a_denied_value: in_one(AllAndObjects, Kubernetes);
    a_moved_folder_of_terraform_with_a_denied_value: in_one(Folder, Terraform);
    a_moved_folder_of_terraform_then_a_denied_value: in_two(Folder, Terraform);
    a_renamed_project_of_terraform_with_a_denied_value: in_one(Project, Terraform);
    a_renamed_project_of_terraform_then_a_denied_value: in_two(Project, Terraform);
    an_identity_of_terraform_then_a_denied_value: in_two(Identity, Terraform);
    all_names_of_terraform_with_a_denied_value: in_one(All, Terraform);
}

/// A line on the default branch ends the guards of an earlier name, after its own pull request.
#[tokio::test(flavor = "multi_thread")]
async fn a_reviewed_line_ends_the_guards_of_an_earlier_name() {
    let case = Case::new("line", Rename::Folder, Runtime::Kubernetes);
    let case = Case {
        name: "g-ended".to_owned(),
        ..case
    };
    let mut stage = case.stage().await;
    let line = "  ended_names: [{stacks: 'apps/*/prod', was: 'appops/**', reason: a toy now}, {stacks: 'apps/*/prod', was: 'g-*/prod', reason: a toy now}]\n";
    // Not for the pull request that adds it.
    let (head, found) = preview(&mut stage, 8, "renamed", |stage| {
        case.rename(stage);
        case.write(stage, "bad");
        stage.configure(&case.config(line, false));
    });
    assert_found(&found, "deny", "by-folder/main.deny", &case.id(), &["forbidden"]);
    stage.approved_by(8, "grace", &head);
    stage.merge(8, "renamed").outcome.check(3);
    assert!(case.is_live(&stage, "good").await);

    // The next one is not judged by the set of the earlier folder. The one of the identity, which is still its own, is
    // not ended by a line.
    let (head, found) = preview(&mut stage, 9, "next", |stage| {
        let file = format!("{}/prod/main.k", case.folder());
        let program = case.program(&case.object(), "bad");
        stage.monorepo.write(&file, format!("{program}# Once more.\n"));
    });
    let of_folder = |finding: &Value| finding["rule"] == "by-folder/main.deny";
    assert!(!found.iter().any(of_folder), "{found:#?}");
    assert_found(
        &found,
        "deny",
        "by-identity/main.deny",
        &case.id(),
        &["forbidden"],
    );
    stage.approved_by(9, "grace", &head);
    stage.merge(9, "next").outcome.check(3);
}

/// Nothing connects the two, so nobody can say that it is the same: the preview says what is lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_unguarded_stack_in_the_place_of_a_guarded_one_is_told() {
    let case = Case::new("told", Rename::All, Runtime::Kubernetes);
    let case = Case {
        name: "g-unguarded".to_owned(),
        ..case
    };
    let mut stage = case.stage().await;
    let (_, found) = preview(&mut stage, 8, "instead", |stage| {
        let monorepo = &stage.monorepo;
        monorepo.remove("appops/g-unguarded");
        monorepo.write("apps/fresh/project.yaml", "name: fresh\n");
        monorepo.write(
            "apps/fresh/live/stack.yaml",
            "# Another thing altogether.\nname: live\nlabels: {a: b}\n",
        );
        monorepo.write(
            "apps/fresh/live/kcl.yaml",
            "kcl_cli_configs:\n  file:\n  - program.k\n  disable_none: true\n",
        );
        monorepo.write("apps/fresh/live/program.k", "resources = []\n");
    });
    assert_found(
        &found,
        "warn",
        "policy.names",
        "fresh/live",
        &[
            "`g-unguarded/prod`",
            "the set `by-folder`",
            "the set `by-identity`",
            "1 approval",
            "the workflow `backup.yml`",
        ],
    );
}
