//! Small repositories with the properties of published ones: code that other cores refuse, code that KCL 0.4 accepted,
//! packages that are stacks, a base that does not compile.

use super::{
    git::Repository,
    konfigs::{self, RootPath, config_map},
};

/// A repository with one such property.
pub struct Shape {
    pub name: &'static str,
    pub make: fn() -> Repository,
}

/// The shapes whose stacks are compiled with every core.
pub const SHAPES: [Shape; 7] = [
    Shape {
        name: "one import name for two packages",
        make: import_names,
    },
    Shape {
        name: "private members",
        make: private_members,
    },
    Shape {
        name: "lists compared by `!=`",
        make: unequal_lists,
    },
    Shape {
        name: "an import hidden by an attribute",
        make: hidden_imports,
    },
    Shape {
        name: "members of new cores",
        make: new_members,
    },
    Shape {
        name: "KCL 0.4",
        make: old_language,
    },
    Shape {
        name: "KCL 0.4, rewritten",
        make: rewritten,
    },
];

/// Creates the stacks `shop/dev`, `shop/test` and `shop/prod`, which import `models`.
fn shop(models: &[(&str, &str)], main: impl Fn(&str) -> String) -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("shop/project.yaml", "name: shop\n");
    for (path, text) in models {
        repository.write(path, text);
    }
    for stack in ["dev", "test", "prod"] {
        repository
            .write(&format!("shop/{stack}/stack.yaml"), format!("name: {stack}\n"))
            .write(&format!("shop/{stack}/main.k"), main(stack));
    }
    repository.commit("The shop");
    repository
}

/// Returns the program of a ConfigMap whose value is an expression of KCL.
fn with_word(head: &str, word: &str) -> String {
    format!("{head}{}", config_map("WORD").replace("\"WORD\"", word))
}

/// Creates a package with two files that import two packages under one name, as the official packages `service` and
/// `job` do.
pub fn import_names() -> Repository {
    shop(
        &[
            ("models/common.k", "import models.base as c\n\nkind = c.KIND\n"),
            (
                "models/container.k",
                "import models.parts as c\n\npart = c.PART\n",
            ),
            ("models/base/base.k", "KIND = \"service\"\n"),
            ("models/parts/parts.k", "PART = \"container\"\n"),
        ],
        |stack| {
            with_word(
                "import models\n\n",
                &format!("models.kind + models.part + \"-{stack}\""),
            )
        },
    )
}

/// Creates uses of members of another package that begin with `_`, as in both Konfigs.
pub fn private_members() -> Repository {
    shop(
        &[(
            "models/metadata/metadata.k",
            "__META_APP_NAME = option(\"app\") or \"shop\"\n",
        )],
        |stack| {
            with_word(
                "import models.metadata\n\n_name = metadata.__META_APP_NAME\n",
                &format!("_name + \"-{stack}\""),
            )
        },
    )
}

/// Creates a comparison of lists of different types.
pub fn unequal_lists() -> Repository {
    shop(&[], |stack| {
        with_word(
            "_ports: [any] = [80]\n\n",
            &format!("\"{stack}-open\" if _ports != [] else \"closed\""),
        )
    })
}

/// Creates an attribute with the name of an import, as in the render file of Konfig.
pub fn hidden_imports() -> Repository {
    shop(
        &[
            ("models/metadata/metadata.k", "__META_APP_NAME = \"shop\"\n"),
            (
                "models/v1/v1.k",
                "schema Meta:\n    name?: str\n\nschema Part:\n    name?: str\n\nschema App:\n    metadata?: Meta\n    part?: Part\n",
            ),
        ],
        |stack| {
            with_word(
                "import models.metadata\nimport models.v1\n\n_app = v1.App {\n    metadata = v1.Meta {name = \"shop\"}\n    part = v1.Part {name = metadata.__META_APP_NAME}\n}\n",
                &format!("_app.part.name + \"-{stack}\""),
            )
        },
    )
}

/// Creates uses of members that only later cores have.
pub fn new_members() -> Repository {
    shop(&[], |stack| {
        with_word("import base32\n\n", &format!("base32.encode(\"{stack}\")"))
    })
}

/// The files of [`old_language`]: path, the code that KCL 0.4 accepted, and the code that the hints suggest.
const OLD_FILES: [(&str, &str, &str); 5] = [
    (
        "models/database.k",
        "schema Rule:\n    port?: int\n    groups: [str] = []\n    self: bool = false\n\nschema Group:\n    rules?: [Rule]\n    open?: bool = true\n",
        "schema Rule:\n    port?: int\n    groups?: [str] = []\n    self: bool = False\n\nschema Group:\n    rules?: [Rule]\n    open?: bool = True\n",
    ),
    (
        "models/backend.k",
        "import models\n\nschema Deployment:\n    replicas: int = 1\n\nschema StatefulSet:\n    serviceName: str = \"shop\"\n\nschema Account[name: str, dependsOn: [str]]:\n    text: str = name\n\nschema Backend[kind: str]:\n    group = models.Group {rules = [{port = 80, groups = None}]}\n    account = Account(kind).text\n    if kind == \"Deployment\":\n        _workload = Deployment {}\n    else:\n        _workload = StatefulSet {}\n    word: str = typeof(_workload) + account\n",
        "import models\n\nschema Deployment:\n    replicas: int = 1\n\nschema StatefulSet:\n    serviceName: str = \"shop\"\n\nschema Account[name: str, dependsOn: [str]]:\n    text: str = name\n\nschema Backend[kind: str]:\n    group = models.Group {rules = [{port = 80, groups = None}]}\n    account = Account(kind, Undefined).text\n    if kind == \"Deployment\":\n        _workload: Deployment | StatefulSet = Deployment {}\n    else:\n        _workload = StatefulSet {}\n    word: str = typeof(_workload) + account\n",
    ),
    (
        "models/env.k",
        "schema Source:\n    fieldRef?: str\n    secretRef?: str\n\n    check:\n        notfieldRef or notsecretRef, \"one of them\"\n",
        "schema Source:\n    fieldRef?: str\n    secretRef?: str\n\n    check:\n        not fieldRef or not secretRef, \"one of them\"\n",
    ),
    (
        "models/project.k",
        "import kcl_plugin.project_context as ctx\n\nPROJECT = ctx.get_project_context()[\"name\"]\n",
        "PROJECT = option(\"project\") or \"shop\"\n",
    ),
    (
        "shop/base/base.k",
        "import models\n\nsource = models.Source {\n    __settings__: {output_type = \"STANDALONE\"}\n    fieldRef = \"a\"\n}\n",
        "import models\n\nsource = models.Source {\n    fieldRef = \"a\"\n}\n",
    ),
];

/// Creates a repository with code of KCL 0.4, which no supported core compiles.
pub fn old_language() -> Repository {
    old_files(|(path, old, _)| (*path, *old), "source = models.Source {")
}

/// Creates the repository of [`old_language`] after all edits that its hints suggest.
pub fn rewritten() -> Repository {
    old_files(|(path, _, new)| (*path, *new), "source: models.Source {")
}

fn old_files(
    text: impl Fn(&'static (&'static str, &'static str, &'static str)) -> (&'static str, &'static str),
    again: &str,
) -> Repository {
    let files: Vec<_> = OLD_FILES.iter().map(text).collect();
    let models = files.iter().map(|(path, text)| {
        // A package cannot import itself.
        let path = match *path {
            "models/backend.k" => "models/backend/backend.k",
            path => path,
        };
        (path, *text)
    });
    let models: Vec<_> = models.collect();
    let repository = shop(&models, |stack| {
        let resources = with_word(
            "",
            &format!("backend.Backend(\"Deployment\").word + models.PROJECT + \"-{stack}\""),
        );
        format!(
            "import models\nimport models.backend\nimport manifests\n\n{again}\n    secretRef = Undefined\n}}\n_{resources}\n\
             manifests.yaml_stream([{{resources = _resources}}])\n"
        )
    });
    for stack in ["dev", "test", "prod"] {
        repository.write(
            &format!("shop/{stack}/kcl.yaml"),
            "kcl_cli_configs:\n  file:\n    - ../base/base.k\n    - main.k\n",
        );
    }
    repository.commit("Entries");
    repository
}

/// Creates kcl-lang's Konfig as published: packages with a program each, without `project.yaml` and `stack.yaml`.
pub fn packages() -> Repository {
    let repository = konfigs::kcl_lang(RootPath::Published);
    let all = repository.git(["ls-files", "*stack.yaml", "*project.yaml"]);
    for file in all.lines() {
        repository.remove(file);
    }
    // Each project is also a package, but without a program.
    for project in ["appops/guestbook", "server/app_service"] {
        repository.write(
            &format!("examples/{project}/kcl.mod"),
            "[package]\nname = \"nginx-example\"\n",
        );
    }
    repository.commit("Packages alone");
    repository
}
