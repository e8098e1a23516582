//! Builds the input of the policy document of a plan: once masked, as reviewers see it, and once with true values, for
//! policy sets.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::{
    engine_plan::{EnginePlan, PlanNode},
    hook_specs::repeat_runs,
    spec_diff::{ComparedSpecs, SpecMask, plan_against_spec},
};
use crate::runtime::TrueValues;
use konverge_base::model::{
    ClusterName, ResourceId,
    kind_scopes::KindScopes,
    plan::{Action, ResourcePlan, StackPlan},
    plan_document::DesiredResource,
    spec::{Resource, RuntimeKind, Spec, terraform_type},
};
use konverge_secrets::{Secrets, hidden_texts};

/// A plan with true values, for policy sets. Only the data of Secrets and sensitive attributes are masked. Never print
/// or store it.
pub struct TruePlan {
    /// The plan with true values.
    pub plan: StackPlan,
    /// The desired resources, with true values.
    pub desired: Vec<DesiredResource>,
    /// The texts in the plan that are masked wherever they are shown.
    pub hidden: BTreeSet<String>,
}

/// A resource that was planned again during an apply.
#[derive(Clone, Copy)]
pub struct LatePlan<'a> {
    /// The plan of the resource as it is shown and reviewed; masked.
    pub shown: &'a ResourcePlan,
    /// The true values of the resource; `None` if none of them is known.
    pub truth: Option<&'a TrueValues>,
    /// The secrets to mask.
    pub secrets: &'a Secrets,
}

impl LatePlan<'_> {
    /// Returns the plan with true values, for policy sets, and the texts in the plan that are masked wherever they are
    /// shown.
    pub fn judged(&self) -> (ResourcePlan, BTreeSet<String>) {
        match self.truth {
            Some(truth) => {
                let hidden = hidden_in(truth, self.shown.runtime, self.secrets);
                (truth.of_plan(self.shown), hidden.collect())
            }
            None => (self.shown.clone(), BTreeSet::new()),
        }
    }
}

impl EnginePlan {
    /// Returns the resources that the Spec has and that could be planned, and the recorded ones that are deleted;
    /// masked.
    pub fn desired(&self) -> Vec<DesiredResource> {
        let masked = |node: &PlanNode| desired_of(node, None, SpecMask::for_readers(&self.secrets));
        self.nodes_of_document().filter_map(masked).collect()
    }

    /// Returns the plan and its resources with true values.
    pub fn truth(&self) -> TruePlan {
        let late = self.late_plans();
        let resources = late.map(|late| match late.truth {
            Some(truth) => truth.of_plan(late.shown),
            None => late.shown.clone(),
        });
        let plan = StackPlan {
            resources: resources.collect(),
            ..self.public.clone()
        };
        let desired = |node: &PlanNode| {
            let truth = node.planned.truth.desired.as_ref();
            desired_of(node, truth, SpecMask::for_rules(&self.secrets))
        };
        let planned = self.nodes.iter().map(|node| &node.planned);
        let hidden =
            planned.flat_map(|planned| hidden_in(&planned.truth, planned.public.runtime, &self.secrets));
        TruePlan {
            plan,
            desired: self.nodes_of_document().filter_map(desired).collect(),
            hidden: hidden.collect(),
        }
    }

    /// Returns the changed resources of a second plan, which an apply makes when values become known.
    pub fn late_plans(&self) -> impl Iterator<Item = LatePlan<'_>> {
        let planned = self.nodes.iter().map(|node| &node.planned);
        let truths: HashMap<_, _> = planned
            .map(|planned| (&planned.item.id, &planned.truth))
            .collect();
        self.public.resources.iter().map(move |shown| LatePlan {
            shown,
            truth: truths.get(&shown.id).copied(),
            secrets: &self.secrets,
        })
    }

    fn nodes_of_document(&self) -> impl Iterator<Item = &PlanNode> {
        let is_there =
            |node: &&PlanNode| !node.is_deletion || node.planned.public.action != Action::Unchanged;
        self.nodes.iter().filter(is_there)
    }
}

/// Returns the texts in true values that are masked wherever they are shown.
fn hidden_in(truth: &TrueValues, runtime: RuntimeKind, secrets: &Secrets) -> impl Iterator<Item = String> {
    let objects = truth.objects();
    objects.flat_map(move |object| hidden_texts(secrets, runtime, &object))
}

fn desired_of(
    node: &PlanNode,
    truth: Option<&Map<String, Value>>,
    mask: SpecMask<'_>,
) -> Option<DesiredResource> {
    let planned = &node.planned;
    let wanted = planned.item.desired.as_ref().or(node.wanted.as_ref());
    let prior = planned.item.prior.as_ref().filter(|_| node.is_deletion);
    // The recorded form is used, because it also masks secrets that came through a reference.
    let (attributes, extensions) = match (planned.recorded.as_ref().or(prior), wanted) {
        (Some(recorded), _) => {
            let attributes = truth.unwrap_or(&recorded.attributes);
            (attributes.clone(), &recorded.extensions)
        }
        (None, Some(wanted)) => (mask.apply(wanted).attributes, &wanted.extensions),
        (None, None) => return None,
    };
    let public = &planned.public;
    Some(DesiredResource {
        id: public.id.clone(),
        runtime: public.runtime,
        kind: kind(&public.id, public.runtime, &attributes, extensions),
        cluster: public.cluster.clone(),
        attributes,
        known_before_write: node.provisional,
    })
}

/// Returns the resources of a Spec that is compared with another Spec.
pub fn desired_by_spec(
    spec: &Spec,
    cluster: Option<&ClusterName>,
    mask: SpecMask<'_>,
) -> Vec<DesiredResource> {
    let desired = |resource: &Resource| {
        let masked = mask.apply(resource);
        DesiredResource {
            kind: kind(&masked.id, masked.runtime, &masked.attributes, &masked.extensions),
            cluster: cluster
                .filter(|_| masked.runtime == RuntimeKind::Kubernetes)
                .cloned(),
            id: masked.id,
            runtime: masked.runtime,
            attributes: masked.attributes,
            // Only an apply resolves references, so the attributes are as complete as they will be before the write.
            known_before_write: true,
        }
    };
    spec.resources.iter().map(desired).collect()
}

/// Compares two Specs with true values. Objects get the namespaces that an apply uses, so that a rule sees the same
/// with and without a cluster.
pub fn true_spec_plan(
    public: &StackPlan,
    specs: ComparedSpecs<'_>,
    cluster: Option<&ClusterName>,
    secrets: &Secrets,
) -> TruePlan {
    let [base, head] = [specs.base, specs.head].map(KindScopes::with_namespaces);
    let specs = ComparedSpecs {
        base: &base,
        head: &head,
    };
    let mask = SpecMask::for_rules(secrets);
    let (id, folder) = (&public.id, &public.stack);
    let hidden = base.resources.iter().chain(&head.resources).flat_map(|resource| {
        let judged = mask.apply(resource);
        hidden_texts(secrets, resource.runtime, &Value::Object(judged.attributes))
    });
    TruePlan {
        plan: StackPlan {
            known_as: public.known_as.clone(),
            ..repeat_runs(
                plan_against_spec(id, folder, specs, cluster, mask),
                public,
                &head,
                cluster,
                mask,
            )
        },
        desired: desired_by_spec(&head, cluster, mask),
        hidden: hidden.collect(),
    }
}

/// Returns the kind of an object, or the type of a Terraform resource.
fn kind(
    id: &ResourceId,
    runtime: RuntimeKind,
    attributes: &Map<String, Value>,
    extensions: &Map<String, Value>,
) -> String {
    let text = match runtime {
        RuntimeKind::Kubernetes => attributes.get("kind").and_then(Value::as_str),
        RuntimeKind::Terraform => terraform_type(id, extensions),
    };
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use serde_json::json;

    /// Terraform takes the type from the id where nothing else says it: a rule must see the same.
    #[test]
    fn a_rule_sees_the_type_that_terraform_takes() {
        let kind = |id: &str, extensions: Value| {
            let resource = Resource {
                extensions: extensions.as_object().unwrap().clone(),
                ..Resource::new(id.parse().unwrap(), RuntimeKind::Terraform, Map::new())
            };
            let spec = Spec {
                resources: vec![resource],
                ..Spec::default()
            };
            let secrets = Secrets::new(HashKey::derive("k"));
            let desired = desired_by_spec(&spec, None, SpecMask::for_readers(&secrets));
            desired[0].kind.clone()
        };
        let id = "hashicorp:aws:aws_db_instance:orders";
        assert_eq!(kind(id, json!({})), "aws_db_instance");
        assert_eq!(kind(id, json!({"resourceType": "aws_instance"})), "aws_instance");
        assert_eq!(kind("a:b:c", json!({})), "");
        assert_eq!(kind("a:b:c:d:e", json!({"resourceType": 1})), "c");
    }

    /// Without a cluster nobody has prepared the objects: a rule must see the namespace of the apply all the same.
    #[test]
    fn a_rule_sees_the_namespace_of_the_apply() {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        let resource = Resource::new(
            "v1:ConfigMap:c".parse().unwrap(),
            RuntimeKind::Kubernetes,
            body.as_object().unwrap().clone(),
        );
        let head = Spec {
            resources: vec![resource],
            ..Spec::default()
        };
        let nothing = Spec::default();
        let specs = ComparedSpecs {
            base: &nothing,
            head: &head,
        };
        let secrets = Secrets::new(HashKey::derive("k"));
        let (id, folder) = (
            "shop/dev".parse().unwrap(),
            konverge_base::model::RepoPath::root(),
        );
        let mask = SpecMask::for_readers(&secrets);
        let shown = plan_against_spec(&id, &folder, specs, None, mask);
        let truth = true_spec_plan(&shown, specs, None, &secrets);
        let whole = truth.plan.resources[0].changes[0].to.as_ref().unwrap();
        assert_eq!(whole["metadata"]["namespace"], "default");
        assert_eq!(truth.desired[0].attributes["metadata"]["namespace"], "default");
    }
}
