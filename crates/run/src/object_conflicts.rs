//! Finds objects that two stacks of one plan would create or adopt. Each stack alone could be applied, but not both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId,
        claim::{Claim, Marks},
        plan::{Action, Plan, ResourcePlan, StackPlan},
        review::ReviewedStack,
        spec::{RuntimeKind, Spec},
    },
};
use konverge_secrets::{Secrets, redact};

/// The claims that are in a stack's Spec, but not visible in its plan.
#[derive(Debug, Default)]
pub struct DeclaredClaims {
    /// The claims of the Terraform imports.
    imports: BTreeMap<ResourceId, Claim>,
    /// The resources that the stack shares with the other stacks of its project.
    shared: BTreeSet<ResourceId>,
}

impl DeclaredClaims {
    pub fn from_spec(spec: &Spec) -> Self {
        let mut declared = Self::default();
        for resource in &spec.resources {
            if resource.is_shared() {
                declared.shared.insert(resource.id.clone());
            }
            let is_terraform = resource.runtime == RuntimeKind::Terraform;
            if let Some(claim) = is_terraform.then(|| Claim::of_resource(resource, None)).flatten() {
                declared.imports.insert(resource.id.clone(), claim);
            }
        }
        declared
    }
}

/// Returns the claim on an object that the apply of a planned resource would make.
fn new_claim(plan: &ResourcePlan, declared: Option<&DeclaredClaims>) -> Option<Claim> {
    let is_new = matches!(plan.action, Action::Create | Action::Adopt | Action::Run);
    match plan.runtime {
        RuntimeKind::Kubernetes if is_new => {
            let parts = plan.id.object()?;
            let of = parts.group_kind();
            Some(Claim::Object {
                cluster: plan.cluster.clone()?,
                key: [of.group, of.kind, "", parts.name].map(str::to_owned),
            })
        }
        RuntimeKind::Terraform if is_new || plan.action == Action::Update => {
            declared?.imports.get(&plan.id).cloned()
        }
        RuntimeKind::Kubernetes | RuntimeKind::Terraform => None,
    }
}

/// Sets an error on each stack that would create or adopt the same object as another stack. Returns these stacks.
pub(crate) fn refuse(plan: &mut Plan, declared: &BTreeMap<StackId, DeclaredClaims>) -> BTreeSet<StackId> {
    let mut wanted: BTreeMap<Claim, Vec<(usize, &ResourceId)>> = BTreeMap::new();
    for (at, stack) in plan.stacks.iter().enumerate() {
        for resource in &stack.resources {
            if let Some(new) = new_claim(resource, declared.get(&stack.id)) {
                wanted.entry(new).or_default().push((at, &resource.id));
            }
        }
    }
    let mut refusals: BTreeMap<usize, UserError> = BTreeMap::new();
    for (new, stacks) in &wanted {
        for (at, id) in stacks {
            let mine = &plan.stacks[*at].id;
            let collides = |(other, theirs): &&(usize, &ResourceId)| {
                let other = &plan.stacks[*other].id;
                let both_share = shares(declared, mine, id) && shares(declared, other, theirs);
                other != mine && !(both_share && mine.is_sibling_of(other.as_str()))
            };
            if let Some((other, _)) = stacks.iter().find(collides) {
                let other = &plan.stacks[*other].id;
                refusals.entry(*at).or_insert_with(|| refusal(new, id, other));
            }
        }
    }
    let mut refused = BTreeSet::new();
    for (at, failure) in refusals {
        let stack = &mut plan.stacks[at];
        refused.insert(stack.id.clone());
        set_error(stack, &failure);
    }
    refused
}

fn shares(declared: &BTreeMap<StackId, DeclaredClaims>, stack: &StackId, id: &ResourceId) -> bool {
    declared
        .get(stack)
        .is_some_and(|declared| declared.shared.contains(id))
}

/// Returns the short hashes of all claims that the apply of a stack would make.
pub(crate) fn marks(stack: &StackPlan, declared: &DeclaredClaims) -> Marks {
    let resources = stack.resources.iter();
    Marks::from_claims(resources.filter_map(|resource| new_claim(resource, Some(declared))))
}

/// Sets an error on each stack that would create or adopt the same object as a stack of another job's preview.
pub(crate) fn refuse_elsewhere(
    plan: &mut Plan,
    declared: &BTreeMap<StackId, DeclaredClaims>,
    elsewhere: &[ReviewedStack],
    secrets: &Secrets,
) {
    let mut wanted: HashMap<&str, Vec<&StackId>> = HashMap::new();
    for stack in elsewhere {
        for mark in stack.claims.iter() {
            wanted.entry(mark).or_default().push(&stack.id);
        }
    }
    for stack in &mut plan.stacks {
        let mut resources = stack.resources.iter();
        let failure = resources.find_map(|resource| {
            let declared = declared.get(&stack.id);
            let new = new_claim(resource, declared)?;
            let mut others = wanted.get(new.mark().as_str())?.iter().copied();
            // This job does not know whether the other stack shares the object, so the apply of either stack checks
            // that.
            let mine = declared.is_some_and(|stack| stack.shared.contains(&resource.id));
            let is_shared = |other: &StackId| mine && stack.id.is_sibling_of(other.as_str());
            let other = others.find(|other| **other != stack.id && !is_shared(other))?;
            Some(refusal(&new, &resource.id, other))
        });
        if let Some(failure) = failure {
            set_error(stack, &redact::failure(&failure, secrets));
        }
    }
}

/// Adds an error to a stack, or sets it if the stack has none.
fn set_error(stack: &mut StackPlan, failure: &UserError) {
    match &mut stack.error {
        Some(error) => error.add(failure.body()),
        None => {
            stack.error = Some(failure.body());
            stack.held_back.clear();
        }
    }
}

fn refusal(new: &Claim, id: &ResourceId, other: &StackId) -> UserError {
    let what = match new {
        Claim::Import { .. } => {
            format!("`{id}`: stack `{other}` would import the same object by its `import-id`")
        }
        Claim::Object { .. } | Claim::ObjectHash { .. } => {
            format!("`{id}`: stack `{other}` would create or adopt the same object")
        }
    };
    UserError::new(ErrorKind::Policy, what)
        .hint("only one stack can own an object: remove the object from one of the two stacks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{RepoPath, plan::Basis};

    fn stack(id: &str, cluster: &str, resource: &str, action: Action) -> StackPlan {
        let id: StackId = id.parse().unwrap();
        let mut planned = ResourcePlan::new(
            &id,
            resource.parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            Vec::new(),
        );
        planned.cluster = Some(cluster.parse().unwrap());
        StackPlan::new(RepoPath::root(), id, Basis::Live, vec![planned])
    }

    fn refuse_collisions(stacks: Vec<StackPlan>) -> usize {
        let mut plan = Plan { version: 1, stacks };
        let refused = refuse(&mut plan, &BTreeMap::new());
        assert_eq!(
            plan.stacks.iter().filter(|stack| stack.error.is_some()).count(),
            refused.len()
        );
        refused.len()
    }

    #[test]
    fn two_stacks_cannot_create_one_object() {
        let web = "apps/v1:Deployment:shop:web";
        let one = || stack("a/dev", "east", web, Action::Create);
        assert_eq!(
            refuse_collisions(vec![one(), stack("b/dev", "east", web, Action::Create)]),
            2
        );
        let beta = "apps/v1beta1:Deployment:shop:web";
        assert_eq!(
            refuse_collisions(vec![one(), stack("b/dev", "east", beta, Action::Adopt)]),
            2
        );
        assert_eq!(
            refuse_collisions(vec![one(), stack("b/dev", "west", web, Action::Create)]),
            0
        );
        assert_eq!(
            refuse_collisions(vec![one(), stack("b/dev", "east", web, Action::Delete)]),
            0
        );
        let definition = "apiextensions.k8s.io/v1:CustomResourceDefinition:a.b.c";
        let make = |id: &str| stack(id, "east", definition, Action::Create);
        let shared = |stacks: &[&str]| {
            let declared = |stack: &&str| {
                let shared = BTreeSet::from([definition.parse().unwrap()]);
                let imports = BTreeMap::new();
                (stack.parse().unwrap(), DeclaredClaims { imports, shared })
            };
            stacks.iter().map(declared).collect()
        };
        let refused = |other: &str, declared: BTreeMap<StackId, DeclaredClaims>| {
            let stacks = vec![make("a/dev"), make(other)];
            refuse(&mut Plan { version: 1, stacks }, &declared).len()
        };
        assert_eq!(refused("a/prod", shared(&["a/dev", "a/prod"])), 0);
        assert_eq!(refused("b/prod", shared(&["a/dev", "b/prod"])), 2);
        // Both have to share it.
        assert_eq!(refused("a/prod", shared(&["a/dev"])), 2);
        assert_eq!(refused("a/prod", BTreeMap::new()), 2);
    }

    #[test]
    fn a_stack_that_failed_already_gets_the_error_too() {
        let web = "apps/v1:Deployment:shop:web";
        let mut failed = stack("a/dev", "east", web, Action::Create);
        let first =
            UserError::new(ErrorKind::Kubernetes, "`v1:Secret:shop:db`: forbidden").hint("ask for the right");
        failed.error = Some(first.body());
        let mut plan = Plan {
            version: 1,
            stacks: vec![failed, stack("b/dev", "east", web, Action::Create)],
        };
        assert_eq!(refuse(&mut plan, &BTreeMap::new()).len(), 2);
        let error = plan.stacks[0].error.as_ref().unwrap();
        assert!(
            error.message.starts_with("`v1:Secret:shop:db`: forbidden; and ")
                && error.message.contains("`b/dev`"),
            "{error:?}"
        );
        assert_eq!(error.hints.len(), 2, "{error:?}");
    }

    #[test]
    fn two_stacks_cannot_take_over_one_terraform_object() {
        let stack = |id: &str| {
            let id: StackId = id.parse().unwrap();
            let resource = "hashicorp:aws:aws_vpc:main".parse().unwrap();
            let planned = ResourcePlan::new(&id, resource, RuntimeKind::Terraform, Action::Adopt, Vec::new());
            StackPlan::new(RepoPath::root(), id, Basis::Live, vec![planned])
        };
        let import = |stack: &str, vpc: &str| {
            let claim = Claim::Import {
                kind: "aws_vpc".to_owned(),
                id: vpc.to_owned(),
            };
            let resource: ResourceId = "hashicorp:aws:aws_vpc:main".parse().unwrap();
            let declared = DeclaredClaims {
                imports: BTreeMap::from([(resource, claim)]),
                shared: BTreeSet::new(),
            };
            (stack.parse::<StackId>().unwrap(), declared)
        };
        for (other, refusals) in [("vpc-1", 2), ("vpc-2", 0)] {
            let mut plan = Plan {
                version: 1,
                stacks: vec![stack("a/dev"), stack("b/dev")],
            };
            let imports = BTreeMap::from([import("a/dev", "vpc-1"), import("b/dev", other)]);
            assert_eq!(refuse(&mut plan, &imports).len(), refusals);
        }
    }
}
