//! The eight kinds of change that a monorepo meets, as plans to render.

use konverge_base::model::{
    affected::InputChange,
    plan::{Action, ChangeOrigin, ResourcePlan, StackPlan},
    policy_finding::{Enforcement, PolicyFinding},
};
use serde_json::json;

use super::sample_plans::{Sample, affected_stack, base_number, change, resource, sample, stack, takeover};

/// One kind of change, and what the first screen of its comment must say.
pub struct Kind {
    /// The name of its golden file and picture.
    pub name: &'static str,
    pub sample: Sample,
    /// What happens, how dangerous it is, how much of it is production, and what to do next, in this order.
    pub says: [&'static str; 4],
}

/// All eight.
pub fn kinds() -> [Kind; 8] {
    [
        image(),
        number_in_a_base(),
        new_application(),
        deletion(),
        replacement(),
        adoption(),
        merge_over_drift(),
        denied(),
    ]
}

/// The sample of stacks that their own file changes.
fn own_change(file: &str, kind: InputChange, stacks: Vec<StackPlan>) -> Sample {
    let affected = stacks.iter().map(|stack| {
        let changed = format!("{}/{file}", stack.stack);
        affected_stack(stack.id.as_str(), kind, &[&[&changed]])
    });
    let affected = affected.collect();
    let mut sample = sample(stacks);
    sample.affected.stacks = affected;
    sample.waves.clear();
    sample.links.clear();
    sample
}

/// A new image of production's Deployment.
fn new_image() -> ResourcePlan {
    let image = change(
        "/spec/template/spec/containers/name=orders/image",
        Some(json!("ghcr.io/acme/orders:2.4.0")),
        Some(json!("ghcr.io/acme/orders:2.5.0")),
        ChangeOrigin::Change,
    );
    let mut plan = resource(
        "orders/prod",
        "apps/v1:Deployment:orders:orders",
        Action::Update,
        vec![image],
    );
    plan.pods.restarts = 5;
    plan.notes = vec!["restarts 5 pods by rolling update".to_owned()];
    plan
}

fn image() -> Kind {
    Kind {
        name: "image",
        sample: own_change(
            "main.k",
            InputChange::Modified,
            vec![stack("orders/prod", vec![new_image()])],
        ),
        says: [
            "1 to update",
            "deletes and replaces nothing · restarts 5 pods: `prod` 5",
            "1 to change (1 in production)",
            "**Next**: get the approval, then merge.",
        ],
    }
}

fn number_in_a_base() -> Kind {
    Kind {
        name: "base",
        sample: base_number(12),
        says: [
            "36 to update",
            "deletes and replaces nothing · restarts 108 pods: `prod` 60, `dev` 12, `staging` 36",
            "36 to change (12 in production)",
            "**Next**: get the approval, then merge.",
        ],
    }
}

fn new_application() -> Kind {
    let objects = |name: &str| {
        let namespace = name.replace('/', "-");
        let created = [
            (format!("v1:Namespace::{namespace}"), "v1", "Namespace"),
            (
                format!("apps/v1:Deployment:{namespace}:cart"),
                "apps/v1",
                "Deployment",
            ),
            (format!("v1:Service:{namespace}:cart"), "v1", "Service"),
        ];
        let created = created.map(|(id, version, kind)| {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "cart", "namespace": namespace}});
            let whole = change("", None, Some(object), ChangeOrigin::Change);
            resource(name, &id, Action::Create, vec![whole])
        });
        let mut created = created.to_vec();
        created[1].pods.starts = if name.ends_with("prod") { 3 } else { 1 };
        stack(name, created)
    };
    Kind {
        name: "application",
        sample: own_change(
            "stack.yaml",
            InputChange::Added,
            vec![objects("cart/dev"), objects("cart/prod")],
        ),
        says: [
            "6 to create",
            "changes no existing object · starts 4 pods",
            "2 to change (1 in production)",
            "**Next**: get the approval, then merge.",
        ],
    }
}

fn deletion() -> Kind {
    let gone = |id: &str, loss: Option<&str>| {
        let mut plan = resource("orders/prod", id, Action::Delete, Vec::new());
        plan.data_loss = loss.is_some();
        plan.notes = loss.map(str::to_owned).into_iter().collect();
        plan
    };
    let mut database = gone("apps/v1:StatefulSet:orders:postgres", None);
    database.pods.ends = 2;
    let resources = vec![
        database,
        gone(
            "v1:PersistentVolumeClaim:orders:data-postgres-0",
            Some("the volume's data may be deleted with the claim"),
        ),
        gone(
            "hashicorp:aws:aws_db_instance:orders",
            Some("the database and its automated backups are deleted"),
        ),
    ];
    Kind {
        name: "deletion",
        sample: own_change(
            "main.k",
            InputChange::Modified,
            vec![stack("orders/prod", resources)],
        ),
        says: [
            "3 to delete",
            "data or an address is lost with 2 resources (2 in production)",
            "1 to change (1 in production)",
            "**Next**: save the data that is lost, get the approval, then merge.",
        ],
    }
}

fn replacement() -> Kind {
    let path = "/spec/selector/matchLabels/app";
    let selector = change(
        path,
        Some(json!("orders")),
        Some(json!("orders-api")),
        ChangeOrigin::Change,
    );
    let mut plan = resource(
        "orders/prod",
        "apps/v1:Deployment:orders:orders",
        Action::Replace,
        vec![selector],
    );
    plan.replace = vec![path.into()];
    plan.pods.restarts = 5;
    plan.notes = vec!["5 pods end before the new ones start".to_owned()];
    Kind {
        name: "replacement",
        sample: own_change(
            "main.k",
            InputChange::Modified,
            vec![stack("orders/prod", vec![plan])],
        ),
        says: [
            "1 to replace",
            "1 resource will be deleted or replaced",
            "1 to change (1 in production)",
            "**Next**: check what is deleted or replaced, get the approval, then merge.",
        ],
    }
}

fn adoption() -> Kind {
    Kind {
        name: "adoption",
        sample: takeover(16, 6),
        says: [
            "97 to adopt (1 with changes)",
            "16 stacks are taken over as they run: only the owner annotation is added, to 96 objects.",
            "1 to change (1 in production), 16 taken over as they run (16 in production)",
            "**Next**: check what changes with the takeover, get the approval, then merge.",
        ],
    }
}

fn merge_over_drift() -> Kind {
    let mut plan = new_image();
    plan.changes.push(change(
        "/spec/replicas",
        Some(json!(6)),
        Some(json!(3)),
        ChangeOrigin::Drift,
    ));
    plan.pods.ends = 3;
    Kind {
        name: "drift",
        sample: own_change(
            "main.k",
            InputChange::Modified,
            vec![stack("orders/prod", vec![plan])],
        ),
        says: [
            "1 to update, and takes back what others changed in 1 resource",
            "`spec.replicas` `6` → `3` of `Deployment orders/orders` in `orders/prod`",
            "1 to change (1 in production)",
            "**Next**: check what is taken back, get the approval, then merge.",
        ],
    }
}

fn denied() -> Kind {
    let deny = |rule: &str, message: &str, hint: &str| PolicyFinding {
        verdict: Enforcement::Deny,
        rule: rule.to_owned(),
        stack: Some("orders/prod".parse().expect("an identity")),
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
        place: None,
    };
    let mut sample = own_change(
        "main.k",
        InputChange::Modified,
        vec![stack("orders/prod", vec![new_image()])],
    );
    sample.findings = vec![
        deny(
            "policy.reviewers",
            "production stacks need an approval by one of @acme/infra; there is none",
            "ask one of @acme/infra to approve this pull request",
        ),
        deny(
            "policy.freeze",
            "frozen until 2026-12-01T06:00:00Z: Black Friday",
            "merge after the freeze, or ask who set it",
        ),
    ];
    Kind {
        name: "denied",
        sample,
        says: [
            "1 to update",
            "**What blocks the apply, and why**",
            "1 to change (1 in production)",
            "**Next**: settle what blocks the apply, get the approval, then merge.",
        ],
    }
}
