//! The published Konfigs as small repositories, with their layouts, settings, entries and names. Models and stacks are
//! shortened.

use super::git::Repository;

/// The projects of kcl-lang's Konfig with their stacks.
const KCL_LANG: [(&str, &[&str]); 18] = [
    ("appops/guestbook", &["dev", "prod", "test"]),
    ("appops/http-echo", &["dev"]),
    ("appops/nginx-example", &["dev"]),
    ("job/app_main_container", &["dev"]),
    ("server/app_affinity", &["prod"]),
    ("server/app_config_map", &["prod"]),
    ("server/app_deployment_strategy", &["prod"]),
    ("server/app_label_selector", &["prod"]),
    ("server/app_main_container", &["prod"]),
    ("server/app_need_namespace", &["prod"]),
    ("server/app_rbac", &["prod"]),
    ("server/app_scheduling_strategy", &["prod"]),
    ("server/app_secret", &["prod"]),
    ("server/app_service", &["prod"]),
    ("server/app_sidecar", &["prod"]),
    ("server/app_stateful_set", &["prod"]),
    ("server/app_volume", &["prod"]),
    ("server/extra_resources", &["dev"]),
];

/// The projects of KusionStack's Konfig with their stacks.
const KUSIONSTACK: [(&str, &[&str]); 22] = [
    ("appops/clickhouse-operator", &["prod"]),
    ("appops/code-city", &["dev"]),
    ("appops/guestbook", &["dev", "prod", "test"]),
    ("appops/guestbook-frontend", &["dev", "pre", "prod", "test"]),
    ("appops/http-echo", &["dev"]),
    ("appops/nginx-example", &["dev"]),
    ("appops/wordpress", &["dev", "prod"]),
    ("base/examples/job-example", &["dev"]),
    ("base/examples/kcl-vault-agent", &["dev"]),
    ("base/examples/kcl-vault-csi", &["dev"]),
    ("base/examples/monitoring/prometheus-example-app", &["prod"]),
    ("base/examples/monitoring/prometheus-install", &["prod"]),
    ("base/examples/server/app_config_map", &["prod"]),
    ("base/examples/server/app_label_selector", &["prod"]),
    ("base/examples/server/app_main_container", &["prod"]),
    ("base/examples/server/app_need_namespace", &["prod"]),
    ("base/examples/server/app_scheduling_strategy", &["prod"]),
    ("base/examples/server/app_secret", &["prod"]),
    ("base/examples/server/app_service", &["prod"]),
    ("base/examples/server/app_sidecar", &["prod"]),
    ("base/examples/server/app_stateful_set", &["prod"]),
    ("base/examples/server/app_volume", &["prod"]),
];

/// The name that ten example projects share.
pub const SHARED_NAME: &str = "sampleapp";

/// How stacks of kcl-lang's Konfig refer to the package at the root of the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RootPath {
    /// As published: by the name of the folder that the repository was cloned into.
    Published,
    /// By a relative path upwards.
    Upwards,
}

/// Creates kcl-lang's Konfig: one `kcl.mod` per stack, which depends on the repository's own package and names its
/// render file as an entry of that package.
pub fn kcl_lang(root: RootPath) -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"konfig\"\nversion = \"0.10.0\"\n")
        .write("models/kube/frontend/server.k", SERVER)
        .write("models/kube/frontend/rbac/role.k", ROLE)
        .write("models/kube/resource/names.k", NAMES)
        .write("models/kube/render/render.k", RENDER_OF_PACKAGE);
    for (project, stacks) in KCL_LANG {
        let folder = format!("examples/{project}");
        repository
            .write(&format!("{folder}/project.yaml"), project_of(project))
            .write(
                &format!("{folder}/base/base.k"),
                base_of("konfig.models.kube.frontend", project),
            );
        for stack in stacks {
            let up = match root {
                RootPath::Published => "../../../../../konfig",
                RootPath::Upwards => "../../../..",
            };
            let module = stack_module(&format!("{}-{stack}", name_of(project)), up);
            let main = format!(
                "import konfig.models.kube.frontend\nimport konfig.models.kube.frontend.rbac\n\nserver: frontend.Server {{\n    \
                 replicas = {}\n}}\n_reader = rbac.Role {{name = \"{}-reader\"}}\n",
                stack.len(),
                name_of(project).replace('_', "-"),
            );
            repository
                .write(
                    &format!("{folder}/{stack}/stack.yaml"),
                    format!("name: {stack}\n"),
                )
                .write(&format!("{folder}/{stack}/kcl.mod"), module)
                .write(&format!("{folder}/{stack}/main.k"), main);
        }
    }
    repository.commit("Konfig");
    repository
}

/// Returns the `kcl.mod` of a stack that is a package and depends on the repository's own package.
pub fn stack_module(name: &str, root: &str) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.1\"\n\n[dependencies]\nkonfig = {{ path = \"{root}\" }}\n[profile]\n\
         entries = [\"../base/base.k\", \"main.k\", \"${{konfig:KCL_MOD}}/models/kube/render/render.k\"]\n"
    )
}

/// Creates KusionStack's Konfig of 2022: `kcl.yaml` and `ci-test/settings.yaml` in each stack, entries of the
/// repository by `${KCL_MOD}`, golden files that are lists.
pub fn konfig_2022() -> Repository {
    kusionstack(true)
}

/// Creates KusionStack's Konfig of 2023: like 2022, but with options only in `kcl.yaml`.
pub fn konfig_2023() -> Repository {
    kusionstack(false)
}

fn kusionstack(both_files: bool) -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"konfig\"\n")
        .write("base/pkg/kusion_models/kube/metadata/metadata.k", METADATA)
        .write("base/pkg/kusion_models/kube/frontend/server.k", SERVER)
        .write("base/pkg/kusion_models/kube/render/render.k", RENDER);
    for (project, stacks) in KUSIONSTACK {
        repository
            .write(&format!("{project}/project.yaml"), project_of(project))
            .write(
                &format!("{project}/base/base.k"),
                base_of("base.pkg.kusion_models.kube.frontend", project),
            );
        for stack in stacks {
            let folder = format!("{project}/{stack}");
            let options = format!(
                "kcl_options:\n  - key: app\n    value: {}\n  - key: env\n    value: {stack}\n",
                name_of(project)
            );
            let mut settings = SETTINGS.to_owned();
            if both_files {
                repository.write(&format!("{folder}/ci-test/settings.yaml"), options);
            } else {
                settings.push_str(&options);
            }
            let main = format!(
                "import base.pkg.kusion_models.kube.frontend\n\nserver: frontend.Server {{\n    replicas = {}\n}}\n",
                stack.len()
            );
            repository
                .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
                .write(&format!("{folder}/kcl.yaml"), settings)
                .write(&format!("{folder}/main.k"), main);
        }
    }
    repository.commit("Konfig");
    repository
}

/// Creates a repository with the monorepo in a folder.
pub fn subfolder(folder: &str) -> Repository {
    let repository = Repository::init();
    repository.write("README.md", "Everything of ours.\n");
    write_one_stack(&repository, &format!("{folder}/"));
    repository.commit("Everything");
    repository
}

/// Creates a repository with one stack.
pub fn one_stack() -> Repository {
    let repository = Repository::init();
    write_one_stack(&repository, "");
    repository.commit("One stack");
    repository
}

/// Writes a stack of one ConfigMap, its project and its `kcl.mod` below a folder (`folder/`, or the root).
pub fn write_one_stack(repository: &Repository, root: &str) {
    repository
        .write(&format!("{root}kcl.mod"), "[package]\nname = \"shop\"\n")
        .write(&format!("{root}shop/project.yaml"), "name: shop\n")
        .write(&format!("{root}shop/dev/stack.yaml"), "name: dev\n")
        .write(&format!("{root}shop/dev/main.k"), config_map("one"));
}

/// Returns a program with one ConfigMap.
pub fn config_map(word: &str) -> String {
    format!(
        "resources = [{{\n    id = \"v1:ConfigMap:default:settings\"\n    type = \"Kubernetes\"\n    attributes = {{\n        \
         apiVersion = \"v1\"\n        kind = \"ConfigMap\"\n        metadata = {{name = \"settings\", namespace = \"default\"}}\n        \
         data = {{word = \"{word}\"}}\n    }}\n}}]\n"
    )
}

pub fn name_of(project: &str) -> &str {
    project.rsplit('/').next().expect("a path has a last part")
}

fn project_of(project: &str) -> String {
    let name = if project.contains("server/") {
        SHARED_NAME
    } else {
        name_of(project)
    };
    format!("name: {name}\n")
}

pub fn base_of(package: &str, project: &str) -> String {
    let name = name_of(project).replace('_', "-");
    format!(
        "import {package}\n\nserver: frontend.Server {{\n    name = \"{name}\"\n    image = \"example/{name}:1\"\n}}\n"
    )
}

pub const SETTINGS: &str = "kcl_cli_configs:\n  file:\n    - ${KCL_MOD}/base/pkg/kusion_models/kube/metadata/metadata.k\n    - \
                        ../base/base.k\n    - main.k\n    - ${KCL_MOD}/base/pkg/kusion_models/kube/render/render.k\n  \
                        disable_none: true\n";

pub const METADATA: &str =
    "__META_APP_NAME = option(\"app\") or \"app\"\n__META_ENV_TYPE_NAME = option(\"env\") or \"dev\"\n";

pub const SERVER: &str = "schema Server:\n    name: str\n    image: str\n    replicas: int = 1\n";

pub const ROLE: &str = "schema Role:\n    name: str\n";

pub const NAMES: &str = "identify = lambda object -> str {\n    \"${object.apiVersion}:${object.kind}:${object.metadata.name}\"\n}\n";

/// The render file of the repository's own package. It finds the stack's instances of that package's schemas.
pub const RENDER_OF_PACKAGE: &str = r#"import konfig.models.kube.frontend
import konfig.models.kube.frontend.rbac
import models.kube.resource
import manifests

__deployments__ = [{
    apiVersion = "apps/v1"
    kind = "Deployment"
    metadata = {name = server.name, namespace = "default"}
    spec = {
        replicas = server.replicas
        selector.matchLabels.app = server.name
        template = {
            metadata.labels.app = server.name
            spec.containers = [{name = "main", image = server.image}]
        }
    }
} for server in frontend.Server.instances()]
__roles__ = [{
    apiVersion = "rbac.authorization.k8s.io/v1"
    kind = "ClusterRole"
    metadata.name = role.name
    rules = []
} for role in rbac.Role.instances()]
__ids__ = [resource.identify(object) for object in __deployments__ + __roles__]
manifests.yaml_stream(__deployments__ + __roles__)
"#;

pub const RENDER: &str = r#"import base.pkg.kusion_models.kube.frontend
import manifests

__resources__ = [{
    id = "apps/v1:Deployment:default:${server.name}"
    type = "Kubernetes"
    attributes = {
        apiVersion = "apps/v1"
        kind = "Deployment"
        metadata = {
            name = server.name
            namespace = "default"
            labels = {app = __META_APP_NAME, env = __META_ENV_TYPE_NAME}
        }
        spec = {
            replicas = server.replicas
            selector.matchLabels.app = server.name
            template = {
                metadata.labels.app = server.name
                spec.containers = [{name = "main", image = server.image}]
            }
        }
    }
} for server in frontend.Server.instances()] + [{
    id = "rbac.authorization.k8s.io/v1:ClusterRoleBinding:default:${server.name}"
    type = "Kubernetes"
    attributes = {
        apiVersion = "rbac.authorization.k8s.io/v1"
        kind = "ClusterRoleBinding"
        metadata = {name = server.name, namespace = "default"}
        roleRef = {apiGroup = "rbac.authorization.k8s.io", kind = "ClusterRole", name = "view"}
        subjects = []
    }
} for server in frontend.Server.instances() if server.name == "prometheus-install"]
manifests.yaml_stream([{resources = __resources__}])
"#;
