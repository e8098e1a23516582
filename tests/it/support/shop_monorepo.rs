//! A monorepo of one project whose stacks want whole objects, for commands that are run on real clusters.

use serde_json::{Value, json};

use super::{
    git::Repository,
    process::{Konverge, Outcome},
    stack::id,
};

/// The project `shop` in `apps/shop`, with its state beside the repository.
pub struct Shop {
    pub monorepo: Repository,
    env: Vec<(&'static str, String)>,
}

impl Shop {
    /// With the text of `konverge.yaml`, and what each command's environment has besides.
    pub fn new(config: &str, env: &[(&'static str, &std::path::Path)]) -> Self {
        let monorepo = Repository::init();
        monorepo
            .write("konverge.yaml", config)
            .write("kcl.mod", "[package]\nname = \"shop\"\n")
            .write("apps/shop/project.yaml", "name: shop\n");
        let env = env
            .iter()
            .map(|(name, path)| (*name, path.display().to_string()))
            .collect();
        Self { monorepo, env }
    }

    /// Commits a stack of the project that wants these resources.
    pub fn wants(&self, stack: &str, resources: &[Value]) {
        let folder = format!("apps/shop/{stack}");
        // JSON is KCL, but for two words.
        let resources = json!(resources).to_string();
        let resources = resources.replace(":true", ":True").replace(":false", ":False");
        self.monorepo
            .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
            .write(
                &format!("{folder}/kcl.yaml"),
                "kcl_cli_configs:\n  files: [main.k]\n",
            )
            .write(&format!("{folder}/main.k"), format!("resources = {resources}\n"))
            .commit(stack);
    }

    /// A command in the repository.
    pub fn konverge(&self, arguments: &[&str]) -> Konverge {
        let run = Konverge::new(arguments)
            .with_kcl()
            .dir(self.monorepo.path())
            .env("XDG_STATE_HOME", self.monorepo.path().join(".git/test-state"));
        self.env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    /// The same, run to its end.
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        self.konverge(arguments).run()
    }

    /// Runs a command that applies or destroys, and says how each stack ended, by identity.
    pub fn ends(&self, arguments: &[&str], code: i32) -> Vec<(String, String)> {
        let outcome = self
            .run(&[arguments, &["--yes", "--output", "json"]].concat())
            .expect(code);
        let stacks = outcome.json()["stacks"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        stacks
            .iter()
            .map(|stack| (text(&stack["id"]), text(&stack["result"])))
            .collect()
    }
}

/// A resource of a Spec: an object under the id that Kusion would give it.
pub fn resource(object: &Value) -> Value {
    json!({"id": id(object), "type": "Kubernetes", "attributes": object})
}
