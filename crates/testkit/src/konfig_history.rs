//! The published history of both Konfigs, replayed as commits, with the layouts, settings, entries and names of each
//! step. Models and stacks are shortened. Packages from a registry are left out.

use std::collections::BTreeMap;

use super::{git::Repository, konfigs};

/// One step of a history.
pub struct Step {
    /// A description of the step.
    pub what: &'static str,
    edit: fn(&mut Tree),
}

/// The files of a revision.
#[derive(Default)]
struct Tree(BTreeMap<String, String>);

/// Commits the steps, one after the other.
pub struct Replay {
    /// The repository, at the last committed step.
    pub repository: Repository,
    tree: Tree,
    steps: std::vec::IntoIter<Step>,
}

impl Replay {
    fn new(steps: Vec<Step>) -> Self {
        Self {
            repository: Repository::init(),
            tree: Tree::default(),
            steps: steps.into_iter(),
        }
    }

    /// Creates KusionStack's Konfig, from its first publication in 2022 to one `kcl.mod` per stack in 2024.
    pub fn kusionstack() -> Self {
        Self::new(kusionstack())
    }

    /// Creates kcl-lang's Konfig, which continued from there.
    pub fn kcl_lang() -> Self {
        Self::new(kcl_lang())
    }

    /// Commits the next step, and returns its description; `None` after the last.
    #[expect(clippy::should_implement_trait, reason = "a step borrows the history")]
    pub fn next(&mut self) -> Option<&'static str> {
        let step = self.steps.next()?;
        let before: Vec<String> = self.tree.0.keys().cloned().collect();
        (step.edit)(&mut self.tree);
        for gone in before.iter().filter(|path| !self.tree.0.contains_key(*path)) {
            std::fs::remove_file(self.repository.path().join(gone)).unwrap();
        }
        for (path, text) in &self.tree.0 {
            self.repository.write(path, text);
        }
        self.repository.commit(step.what);
        Some(step.what)
    }

    /// Returns the folders of the stacks at the last step.
    pub fn stacks(&self) -> Vec<String> {
        let files = self.tree.0.keys();
        files
            .filter_map(|path| path.strip_suffix("/stack.yaml").map(str::to_owned))
            .collect()
    }
}

impl Tree {
    fn put(&mut self, path: &str, text: impl Into<String>) {
        self.0.insert(path.to_owned(), text.into());
    }

    /// Replaces a text that must be in a file.
    fn replace(&mut self, path: &str, from: &str, to: &str) {
        let text = self.0.get_mut(path).unwrap_or_else(|| panic!("no {path}"));
        assert!(text.contains(from), "{path}: {text}");
        *text = text.replace(from, to);
    }

    fn remove(&mut self, folder: &str) {
        let inside = format!("{folder}/");
        let count = self.0.len();
        self.0.retain(|path, _| !path.starts_with(&inside));
        assert!(self.0.len() < count, "nothing is in {folder}");
    }

    /// Adds a project in the form until 2023: its models come from the repository's own packages.
    fn project(&mut self, folder: &str, name: &str, tenant: &str) {
        let tenant = match tenant {
            "" => String::new(),
            tenant => format!("tenant: {tenant}\n"),
        };
        self.put(
            &format!("{folder}/project.yaml"),
            format!("# The project basic info\nname: {name}\n{tenant}"),
        );
        let base = konfigs::base_of("base.pkg.kusion_models.kube.frontend", folder);
        self.put(&format!("{folder}/base/base.k"), base);
    }

    /// Adds a stack in the form until 2023: entries in `kcl.yaml`, options in `ci-test/settings.yaml`.
    fn stack(&mut self, folder: &str, name: &str) {
        self.put(
            &format!("{folder}/stack.yaml"),
            format!("# The stack basic info\nname: {name}\n"),
        );
        self.put(&format!("{folder}/kcl.yaml"), konfigs::SETTINGS);
        self.put(
            &format!("{folder}/ci-test/settings.yaml"),
            "kcl_options:\n  - key: cluster\n    value: demo-cluster-name\n",
        );
        self.put(
            &format!("{folder}/main.k"),
            "import base.pkg.kusion_models.kube.frontend\n\nserver: frontend.Server {\n    replicas = 2\n}\n",
        );
    }

    /// Adds an application, whose project has the name of its folder.
    fn app(&mut self, folder: &str, stacks: &[&str]) {
        self.project(folder, konfigs::name_of(folder), "");
        for stack in stacks {
            self.stack(&format!("{folder}/{stack}"), stack);
        }
    }

    /// Adds a project with one `kcl.mod` per stack.
    fn module(&mut self, folder: &str, name: &str, stacks: &[(&str, &str)]) {
        self.put(&format!("{folder}/project.yaml"), format!("name: {name}\n"));
        let base = konfigs::base_of("konfig.models.kube.frontend", folder);
        self.put(&format!("{folder}/base/base.k"), base);
        for (stack, package) in stacks {
            self.put(
                &format!("{folder}/{stack}/stack.yaml"),
                format!("name: {stack}\n"),
            );
            self.put(
                &format!("{folder}/{stack}/kcl.mod"),
                konfigs::stack_module(package, "../../../.."),
            );
            self.put(
                &format!("{folder}/{stack}/main.k"),
                "import konfig.models.kube.frontend\n\nserver: frontend.Server {\n    replicas = 2\n}\n",
            );
        }
    }
}

/// The examples of servers. Their projects all have the same name and tenant.
const SERVERS: [&str; 10] = [
    "app_config_map",
    "app_label_selector",
    "app_main_container",
    "app_need_namespace",
    "app_scheduling_strategy",
    "app_secret",
    "app_service",
    "app_sidecar",
    "app_stateful_set",
    "app_volume",
];

fn step(what: &'static str, edit: fn(&mut Tree)) -> Step {
    Step { what, edit }
}

fn kusionstack() -> Vec<Step> {
    vec![
        step("2022: the first publication", |tree| {
            // The `kcl.mod` names no package. It only has the settings of an older compiler.
            tree.put(
                "kcl.mod",
                "[build]\nenable_pkg_cache=true\ncached_pkg_prefix=\"base.pkg.\"\ntarget=\"native\"\n[expected]\n\
                 kclvm_version=\"v0.4.6\"\n",
            );
            tree.put(
                "base/pkg/kusion_models/kube/metadata/metadata.k",
                konfigs::METADATA,
            );
            tree.put("base/pkg/kusion_models/kube/frontend/server.k", konfigs::SERVER);
            tree.put("base/pkg/kusion_models/kube/render/render.k", konfigs::RENDER);
            tree.app("appops/clickhouse-operator", &["prod"]);
            tree.put("appops/clickhouse-operator/crd/installations.yaml", CRD);
            tree.app("appops/guestbook-frontend", &["pre", "prod", "test"]);
            tree.app("appops/http-echo", &["dev"]);
            tree.app("appops/nginx-example", &["dev"]);
            tree.app("base/examples/job-example", &["dev"]);
            tree.app("base/examples/kcl-vault-agent", &["dev"]);
            tree.app("base/examples/kcl-vault-csi", &["dev"]);
            tree.app("base/examples/monitoring/prometheus-example-app", &["prod"]);
            tree.app("base/examples/monitoring/prometheus-install", &["prod"]);
            tree.app(
                "base/examples/monitoring/prometheus-rules",
                &["example-alert", "k8s-rules"],
            );
            for server in SERVERS {
                let folder = format!("base/examples/server/{server}");
                tree.project(&folder, konfigs::SHARED_NAME, "howieyuen");
                tree.stack(&format!("{folder}/prod"), "prod");
            }
        }),
        step("One example of ten that share a name", |tree| {
            tree.replace(
                "base/examples/server/app_service/prod/main.k",
                "replicas = 2",
                "replicas = 3",
            );
        }),
        step("The base of another one", |tree| {
            tree.replace("base/examples/server/app_volume/base/base.k", ":1\"", ":2\"");
        }),
        step("Documentation and scripts", |tree| {
            tree.put("README.md", "Examples of applications as code.\n");
            tree.put("hack/test_konfig.py", "print('stacks')\n");
        }),
        step("Two goldens", |tree| {
            for stack in [
                "appops/guestbook-frontend/prod",
                "base/examples/server/app_secret/prod",
            ] {
                tree.put(&format!("{stack}/ci-test/stdout.golden.yaml"), "[]\n");
            }
        }),
        step("A project with secret stores", |tree| {
            tree.app("base/examples/secret-as-code", &["dev"]);
            let project = "base/examples/secret-as-code/project.yaml";
            tree.put(
                project,
                "name: secret-as-code\nsecret_stores:\n  vault:\n    address: http://127.0.0.1:8200\n",
            );
        }),
        step("Stacks get other names and folders", |tree| {
            let folder = "base/examples/monitoring/prometheus-rules";
            for (from, to) in [("example-alert", "alert"), ("k8s-rules", "record")] {
                tree.remove(&format!("{folder}/{from}"));
                tree.stack(&format!("{folder}/{to}"), to);
            }
        }),
        step("2023: more applications", |tree| {
            tree.app("appops/code-city", &["dev"]);
            tree.app("appops/guestbook", &["dev", "prod", "test"]);
            tree.app("appops/wordpress", &["dev"]);
            tree.app("appops/wordpress-kubevela", &["dev"]);
            tree.put("appops/wordpress/dev/platform.k", "__platform = \"one\"\n");
            tree.replace(
                "appops/wordpress/dev/kcl.yaml",
                "- main.k",
                "- ./main.k\n    - ./platform.k",
            );
        }),
        step("A stack with the name of its neighbour", |tree| {
            tree.stack("appops/guestbook-frontend/dev", "pre");
        }),
        step("Its name is corrected", |tree| {
            tree.replace(
                "appops/guestbook-frontend/dev/stack.yaml",
                "name: pre",
                "name: dev",
            );
        }),
        step("A model that everything is made of", |tree| {
            let model = "base/pkg/kusion_models/kube/frontend/server.k";
            tree.replace(
                model,
                "replicas: int = 1",
                "replicas: int = 1\n    labels?: {str:str}",
            );
        }),
        step("An option of one stack", |tree| {
            let settings = "appops/guestbook-frontend/prod/ci-test/settings.yaml";
            let options = "kcl_options:\n  - key: __konfig_output_format__\n    value: raw\n";
            tree.replace(settings, "kcl_options:\n", options);
        }),
        step("An entry of one stack", |tree| {
            tree.replace("appops/wordpress/dev/platform.k", "one", "two");
        }),
        step("A definition of one project", |tree| {
            tree.replace(
                "appops/clickhouse-operator/crd/installations.yaml",
                "Namespaced",
                "Cluster",
            );
        }),
        step("One of the ten goes", |tree| {
            tree.remove("base/examples/server/app_sidecar")
        }),
        step("All of them but one go", |tree| {
            for server in SERVERS
                .iter()
                .filter(|server| !["app_sidecar", "app_service"].contains(server))
            {
                tree.remove(&format!("base/examples/server/{server}"));
            }
        }),
        step("2024: one kcl.mod a stack", |tree| {
            tree.remove("appops");
            tree.remove("base");
            packages(tree);
            tree.module(
                "examples/appops/guestbook",
                "guestbook",
                &[
                    ("dev", "guestbook-dev"),
                    ("prod", "guestbook-prod"),
                    ("test", "guestbook-test"),
                ],
            );
            tree.module(
                "examples/appops/http-echo",
                "http-echo",
                &[("dev", "http-echo-dev")],
            );
            tree.module(
                "examples/appops/nginx-example",
                "nginx-example",
                &[("dev", "nginx-example-dev")],
            );
            for server in SERVERS {
                let package = format!("{server}-prod");
                let stacks = [("prod", package.as_str())];
                tree.module(
                    &format!("examples/server/{server}"),
                    konfigs::SHARED_NAME,
                    &stacks,
                );
            }
        }),
    ]
}

fn kcl_lang() -> Vec<Step> {
    vec![
        step("The first publication", |tree| {
            packages(tree);
            tree.put(
                "models/kube/metadata/metadata.k",
                "__META_CLUSTER_NAME = option(\"cluster\")\n",
            );
            tree.module(
                "examples/appops/guestbook",
                "guestbook",
                &[("dev", "guestbook-dev"), ("prod", "guestbook-prod")],
            );
            tree.module(
                "examples/appops/http-echo",
                "http-echo",
                &[("dev", "http-echo-dev")],
            );
            tree.module(
                "examples/appops/nginx-example",
                "nginx-example",
                &[("dev", "nginx-example-dev")],
            );
            tree.module(
                "examples/job/app_main_container",
                "app_main_container",
                &[("dev", "app_main_container_dev")],
            );
            for server in SERVERS {
                let package = format!("{server}-prod");
                let stacks = [("prod", package.as_str())];
                tree.module(
                    &format!("examples/server/{server}"),
                    konfigs::SHARED_NAME,
                    &stacks,
                );
            }
            // Some projects have a package that none of their stacks uses.
            for (project, package) in [
                ("job/app_main_container", "app_main_container"),
                ("server/app_service", "app_service"),
                ("server/app_scheduling_strategy", "nginx-example"),
            ] {
                tree.put(
                    &format!("examples/{project}/kcl.mod"),
                    format!(
                        "[package]\nname = \"{package}\"\nversion = \"0.0.1\"\n\n[dependencies]\nkonfig = {{ path = \"../../..\" }}\n"
                    ),
                );
            }
        }),
        step("One example of ten that share a name", |tree| {
            tree.replace(
                "examples/server/app_service/prod/main.k",
                "replicas = 2",
                "replicas = 3",
            );
        }),
        step("A file that nothing uses", |tree| {
            tree.replace("models/kube/metadata/metadata.k", "cluster", "clusters");
        }),
        step("Two packages of one name", |tree| {
            tree.module(
                "examples/server/app_rbac",
                konfigs::SHARED_NAME,
                &[("prod", "app_volume-prod")],
            );
        }),
        step("A model", |tree| {
            tree.replace(
                "models/kube/frontend/server.k",
                "replicas: int = 1",
                "replicas: int = 1\n    labels?: {str:str}",
            );
        }),
        step("The base of one project", |tree| {
            tree.replace("examples/appops/guestbook/base/base.k", ":1\"", ":2\"");
        }),
        step("The render file that is an entry of all", |tree| {
            tree.replace("models/kube/render/render.k", "\"main\"", "\"app\"");
        }),
        step("Another version of the package", |tree| {
            tree.replace("kcl.mod", "0.9.0", "0.10.0");
        }),
    ]
}

/// Turns the repository into a package, as since 2024.
fn packages(tree: &mut Tree) {
    tree.put("kcl.mod", "[package]\nname = \"konfig\"\nversion = \"0.9.0\"\n");
    tree.put("models/kube/frontend/server.k", konfigs::SERVER);
    tree.put("models/kube/frontend/rbac/role.k", konfigs::ROLE);
    tree.put("models/kube/resource/names.k", konfigs::NAMES);
    tree.put("models/kube/render/render.k", konfigs::RENDER_OF_PACKAGE);
}

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: \
                   installations.example.com\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: installations, \
                   kind: Installation}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: \
                   {openAPIV3Schema: {type: object}}\n";
