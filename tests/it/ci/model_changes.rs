//! Generated models in a pull request: which properties came and went, and which stacks use them.

use konverge_report::{COMMENT_BUDGET, html, markdown};
use serde_json::{Value, json};

use crate::{
    cli::models::crd,
    support::{ci_stage::Stage, git::Repository, golden::golden, sample_plans, tiny_monorepo},
};

const HOSTILE: &str = "</details> @octocat <img src=x> `#12` | ::error::x";

/// A stack that imports these models, and whose ConfigMap says only how large its cart is.
fn write_stack(monorepo: &Repository, id: &str, packages: &[&str]) {
    let map = id.replace('/', "-");
    let imports: String = packages
        .iter()
        .map(|package| format!("import base.pkg.{package}.shop_example_com.v1 as {package}\n"))
        .collect();
    let program = format!(
        "{imports}\nresources = [\n    {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"models-{map}\", namespace = \"default\"}}}}\n]\n"
    );
    tiny_monorepo::write_program(monorepo, id, &program);
}

fn import(stage: &Stage, name: &str) {
    let (from, into) = (format!("crds/{name}"), format!("base/pkg/{name}"));
    stage
        .konverge(["models", "import", &from, "--into", &into])
        .run()
        .check(0);
}

/// Three folders of models, of two sources each of which a stack uses.
fn write_main(stage: &Stage) {
    let monorepo = &stage.monorepo;
    let cart = json!({"size": {"type": "integer", "minimum": 1}, "owner": {"type": "string"}});
    monorepo
        .write("crds/shop/cart.json", crd("Cart", cart))
        .write(
            "crds/shop/basket.json",
            crd("Basket", json!({"size": {"type": "string"}})),
        )
        .write(
            "crds/till/till.json",
            crd("Till", json!({"size": {"type": "string"}})),
        )
        .write(
            "crds/idle/idle.json",
            crd("Idle", json!({"size": {"type": "string"}})),
        );
    for name in ["shop", "till", "idle"] {
        import(stage, name);
    }
    write_stack(monorepo, "a/dev", &["shop"]);
    write_stack(monorepo, "b/dev", &["shop", "till"]);
    write_stack(monorepo, "c/dev", &["till"]);
    write_stack(monorepo, "d/dev", &[]);
    monorepo.commit("Models");
}

fn section(comment: &str) -> &str {
    let from = comment.find("<details open><summary><b>Models</b>");
    let text = &comment[from.unwrap_or_else(|| panic!("no section of models in\n{comment}"))..];
    &text[..text.find("\n</details>").unwrap()]
}

/// Two sources are raised at once: one changes its models, the other only its hash. A third is edited by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_comment_names_the_properties_that_came_and_went_and_the_stacks() {
    let mut stage = Stage::small("").await;
    stage.monorepo.checkout("main");
    write_main(&stage);
    let (_, ran) = stage.reviewed(11, "raise", |stage| {
        let cart =
            json!({"size": {"type": "string"}, "color": {"type": "string"}, HOSTILE: {"type": "string"}});
        let mut till: Value =
            serde_json::from_str(&crd("Till", json!({"size": {"type": "string"}}))).unwrap();
        till["metadata"]["labels"] = json!({"release": "2"});
        stage.monorepo.write("crds/shop/cart.json", crd("Cart", cart));
        stage.monorepo.write(
            "crds/shop/crate.json",
            crd("Crate", json!({"size": {"type": "string"}})),
        );
        stage.monorepo.remove("crds/shop/basket.json");
        stage.monorepo.write("crds/till/till.json", till.to_string());
        import(stage, "shop");
        import(stage, "till");
        stage.monorepo.replace(
            "base/pkg/idle/shop_example_com/v1/idle.k",
            "    size: str\n",
            "    size: int\n",
        );
    });
    let comments = stage.comments();
    let comment = &comments.last().unwrap().1;
    golden("comment-models.md", section(comment));

    let result = std::fs::read_to_string(ran.output("result-path")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    let models = result["models"].as_array().unwrap();
    let folders: Vec<&str> = models
        .iter()
        .map(|model| model["folder"].as_str().unwrap())
        .collect();
    assert_eq!(folders, ["base/pkg/idle", "base/pkg/shop", "base/pkg/till"]);
    assert_eq!(models[1]["packages"][0]["stacks"], json!(["a/dev", "b/dev"]));
    assert_eq!(models[2]["packages"], json!([]));
    for place in [&ran.summary, &ran.outcome.stdout] {
        assert!(place.contains("CartSpec.owner"), "{place}");
        assert!(
            !place
                .lines()
                .any(|line| line.trim_start().starts_with("::error::x")),
            "{place}"
        );
    }
    // A command by hand says the same.
    stage.monorepo.checkout("raise");
    let preview = |output: &str| {
        let run = stage.konverge(["preview", "--base=main", "--live=never", "--output", output]);
        run.run().expect(0).stdout
    };
    let by_hand: Value = serde_json::from_str(&preview("json")).unwrap();
    assert_eq!(by_hand["models"], result["models"]);
    assert!(preview("text").contains("removed CartSpec.owner: optional str\n"));
    let page = preview("html");
    assert!(page.contains("<code>CartSpec.owner</code>") && !page.contains("<img"));
}

/// A change beside the models is told without a section, and a folder that is new names no property.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_change_of_models_there_is_no_section() {
    let mut stage = Stage::small("").await;
    stage.monorepo.checkout("main");
    write_main(&stage);
    let (_, ran) = stage.reviewed(12, "beside", |stage| {
        write_stack(&stage.monorepo, "a/dev", &["shop", "till"]);
        stage.monorepo.write("crds/shop/readme.md", "Ours.\n");
    });
    let comments = stage.comments();
    let comment = &comments.last().unwrap().1;
    assert!(!comment.contains("Models"), "{comment}");
    let result = std::fs::read_to_string(ran.output("result-path")).unwrap();
    assert!(!result.contains("\"models\""), "{result}");

    stage.reviewed(13, "new", |stage| {
        stage.monorepo.write(
            "crds/new/new.json",
            crd("New", json!({"size": {"type": "string"}})),
        );
        import(stage, "new");
        write_stack(&stage.monorepo, "e/dev", &["new"]);
    });
    let comments = stage.comments();
    let (_, comment) = comments.last().unwrap();
    assert_eq!(
        section(comment).lines().skip(2).collect::<Vec<_>>(),
        [
            "- `base/pkg/new` from `crds/new`: new",
            "  - `base/pkg/new/shop_example_com/v1` is new, used by `e/dev`",
        ]
    );
}

/// A release with thousands of properties leaves the rest of the comment in place.
#[test]
fn a_long_section_counts_what_does_not_fit() {
    let mut sample = sample_plans::shop();
    sample.models = sample_plans::model_changes(40, 300);
    let comment = markdown::comment(&sample.input(COMMENT_BUDGET));
    // 280 properties of each package, and the packages that do not fit; nothing else has to give way.
    let shown = section(&comment.body).matches("    - and 280 more\n").count();
    let omitted = markdown::Omitted {
        lines: 40 * 280 + 40 - shown,
        ..markdown::Omitted::default()
    };
    assert_eq!(comment.omitted, omitted);
    let section = section(&comment.body);
    assert!(section.len() < COMMENT_BUDGET / 8, "{}", section.len());
    assert!(section.contains("    - and 280 more\n"), "{section}");
    assert!(
        section.contains("more: `konverge preview` shows them"),
        "{section}"
    );
    let removed = section.find("removed").unwrap();
    assert!(
        removed < section.find("added").unwrap(),
        "what can break a stack comes first"
    );
    let page = html::report(&sample.input(0));
    assert!(page.contains("<h2>Models</h2>") && page.contains("and 100 more"));
}
