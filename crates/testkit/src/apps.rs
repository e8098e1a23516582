//! A repository for the present Kusion: projects whose stacks are packages of their own with AppConfigurations, and the
//! packages that they import, rewritten from the published ones.

use super::git::Repository;

/// The packages as vendored in each stack, by `<name>_<version>`: path and text of each file.
const KAM: &[(&str, &str)] = &[
    ("kcl.mod", "[package]\nname = \"kam\"\nversion = \"0.2.0\"\n"),
    (
        "v1/app_configuration.k",
        "import v1.workload as wl\n\nschema AppConfiguration:\n    workload?: wl.Workload\n    accessories?: {str:any}\n    labels?: {str:str}\n    annotations?: {str:str}\n",
    ),
    (
        "v1/workload.k",
        "schema Workload:\n    \"\"\"What every workload is.\"\"\"\n",
    ),
];

const SERVICE: &[(&str, &str)] = &[
    (
        "kcl.mod",
        "[package]\nname = \"service\"\n\n[dependencies]\nkam = { git = \"https://github.com/KusionStack/kam.git\", tag = \"0.2.0\" }\n",
    ),
    (
        "service.k",
        "import container as c\nimport secret as sec\nimport kam.v1.workload as wl\n\nschema Service(wl.Workload):\n    containers: {str:c.Container}\n    secrets?: {str:sec.Secret}\n    replicas?: int\n    labels?: {str:str}\n    annotations?: {str:str}\n",
    ),
    (
        "secret/secret.k",
        "schema Secret:\n    type: \"basic\" | \"token\" | \"opaque\" | \"certificate\" | \"external\"\n    data?: {str:str}\n    immutable?: bool\n",
    ),
    (
        "container/container.k",
        "import container.probe as p\n\nschema Container:\n    image: str\n    env?: {str:str}\n    resources?: {str:str}\n    files?: {str:FileSpec}\n    readinessProbe?: p.Probe\n\nschema FileSpec:\n    content?: str\n    contentFrom?: str\n    mode: str = \"0644\"\n",
    ),
    (
        "container/probe/probe.k",
        "schema Probe:\n    probeHandler: Exec | Http | Tcp\n    initialDelaySeconds?: int\n    periodSeconds?: int\n\nschema Exec:\n    command: [str]\n\nschema Http:\n    url: str\n    headers?: {str:str}\n\nschema Tcp:\n    url: str\n",
    ),
];

const NETWORK: &[(&str, &str)] = &[
    ("kcl.mod", "[package]\nname = \"network\"\n"),
    (
        "network.k",
        "schema Network:\n    ports?: [Port]\n\nschema Port:\n    port: int = 80\n    targetPort?: int\n    protocol: \"TCP\" | \"UDP\" = \"TCP\"\n    public: bool = False\n",
    ),
];

const JOB: &[(&str, &str)] = &[
    (
        "kcl.mod",
        "[package]\nname = \"job\"\n\n[dependencies]\nkam = { git = \"https://github.com/KusionStack/kam.git\", tag = \"0.2.0\" }\n",
    ),
    (
        "job.k",
        "import container as c\nimport kam.v1.workload as wl\n\nschema Job(wl.Workload):\n    containers: {str:c.Container}\n    schedule?: str\n",
    ),
    (
        "container/container.k",
        "schema Container:\n    image: str\n    command?: [str]\n",
    ),
];

/// The application of Kusion's quickstart.
pub const QUICKSTART: &str = r#"import kam.v1.app_configuration as ac
import service
import service.container as c
import network as n

quickstart: ac.AppConfiguration {
    workload: service.Service {
        containers: {
            quickstart: c.Container {
                image: "kusionstack/kusion-quickstart:latest"
            }
        }
    }
    accessories: {
        "network": n.Network {
            ports: [
                n.Port {
                    port: 8080
                }
            ]
        }
    }
}
"#;

/// Writes the stack `folder`, whose package depends on these versions of the modules `service` and `network`.
pub fn write_stack(repository: &Repository, folder: &str, versions: (&str, &str), program: &str) {
    let (project, stack) = folder.rsplit_once('/').expect("project/stack");
    let (service, network) = versions;
    let name = project.rsplit('/').next().expect("a last part");
    repository
        .write(&format!("{project}/project.yaml"), format!("name: {name}\n"))
        .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
        .write(&format!("{folder}/main.k"), program)
        .write(
            &format!("{folder}/kcl.mod"),
            format!(
                "[package]\n\n[dependencies]\nkam = {{ git = \"https://github.com/KusionStack/kam.git\", tag = \"0.2.0\" }}\nservice = {{ oci = \"oci://ghcr.io/kusionstack/service\", tag = \"{service}\" }}\nnetwork = {{ oci = \"oci://ghcr.io/kusionstack/network\", tag = \"{network}\" }}\n\n[profile]\nentries = [\"main.k\"]\n"
            ),
        );
    let packages = [
        ("kam_0.2.0".to_owned(), KAM),
        (format!("service_{service}"), SERVICE),
        (format!("network_{network}"), NETWORK),
    ];
    for (package, files) in packages {
        for (path, text) in files {
            repository.write(&format!("{folder}/vendor/{package}/{path}"), text);
        }
    }
}

/// Writes the stack of a `job.Job` that is a package of its own.
pub fn write_job(repository: &Repository, folder: &str, program: &str) {
    write_stack(repository, folder, ("0.2.1", "0.3.0"), program);
    let kcl_mod = format!("{folder}/kcl.mod");
    let text = repository.read(&kcl_mod);
    let job = "job = { oci = \"oci://ghcr.io/kusionstack/job\", tag = \"0.2.0\" }";
    let lines = text.lines().filter(|line| !line.starts_with("network"));
    let lines = lines.map(|line| if line.starts_with("service") { job } else { line });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    repository.write(&kcl_mod, text);
    for (path, text) in JOB {
        repository.write(&format!("{folder}/vendor/job_0.2.0/{path}"), text);
    }
}

/// Returns a workspace with settings for `service`.
pub fn workspace(version: &str, configs: &str) -> String {
    format!(
        "modules:\n  service:\n    path: oci://ghcr.io/kusionstack/service\n    version: {version}\n    configs:\n{configs}"
    )
}

/// The files of `hello`, a module that is not built into Konverge.
pub const HELLO: &[(&str, &str)] = &[
    ("kcl.mod", "[package]\nname = \"hello\"\nversion = \"0.1.0\"\n"),
    ("hello.k", "schema Hello:\n    mode: str = \"plain\"\n"),
];

/// Returns the path of the binary of the module `hello`, which is the part `kusion-module`.
pub fn hello_binary() -> std::path::PathBuf {
    super::executable("kusion-module", "kusion-module-hello")
}

/// The name of the binary in its package.
pub const HELLO_FILE: &str = "kusion-module-hello_0.1.0";

/// Writes a stack whose application has a `service.Service` and the accessory `hello.Hello` with these settings.
pub fn write_hello_stack(repository: &Repository, folder: &str, settings: &str) {
    let program = QUICKSTART
        .replace("import network as n\n", "import hello\n")
        .replace(
            "        \"network\": n.Network {\n            ports: [\n                n.Port {\n                    port: 8080\n                }\n            ]\n        }\n",
            &format!("        \"hello\": hello.Hello {{{settings}}}\n"),
        );
    write_stack(repository, folder, ("0.2.1", "0.3.0"), &program);
    let kcl_mod = format!("{folder}/kcl.mod");
    let text = repository.read(&kcl_mod).replace(
        "network = { oci = \"oci://ghcr.io/kusionstack/network\", tag = \"0.3.0\" }",
        "hello = { oci = \"oci://ghcr.io/acme/hello\", tag = \"0.1.0\" }",
    );
    repository.write(&kcl_mod, text);
    for (path, text) in HELLO {
        repository.write(&format!("{folder}/vendor/hello_0.1.0/{path}"), text);
    }
}
