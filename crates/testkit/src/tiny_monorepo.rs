//! A monorepo that is as small as possible: a shared model, and stacks of a namespace with a ConfigMap.

use super::git::Repository;

/// Creates the shared model, without a stack.
pub fn monorepo() -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"konfig\"\n")
        .write("base/app.k", "color = \"green\"\n");
    repository
}

/// Writes the stack `project/name`, whose ConfigMap is in `namespace` and takes its color from the model.
pub fn write_stack(repository: &Repository, id: &str, namespace: &str, level: &str) {
    let resources = format!(
        r#"    {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "settings", "namespace": "{namespace}"}}, "data": {{"level": "{level}", "color": app.color}}}}
"#
    );
    write_resources(repository, id, namespace, &resources);
}

/// Writes the stack `project/name` with a namespace and these resources, given as list items in KCL.
pub fn write_resources(repository: &Repository, id: &str, namespace: &str, resources: &str) {
    let program = format!(
        "import base.app\n\nresources = [\n    {{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {{\"name\": \"{namespace}\"}}}}\n{resources}]\n"
    );
    write_program(repository, id, &program);
}

/// Writes the stack `project/name` with this program.
pub fn write_program(repository: &Repository, id: &str, program: &str) {
    let (project, name) = id.split_once('/').expect("project/name");
    let folder = format!("appops/{project}/{name}");
    repository
        .write(
            &format!("appops/{project}/project.yaml"),
            format!("name: {project}\n"),
        )
        .write(&format!("{folder}/stack.yaml"), format!("name: {name}\n"))
        .write(
            &format!("{folder}/kcl.yaml"),
            "kcl_cli_configs:\n  files: [main.k]\n",
        )
        .write(&format!("{folder}/main.k"), program);
}
