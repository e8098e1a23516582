//! The data that is lost when a Terraform resource is deleted: a table of the types that hold data or an
//! address, by provider. A type of a provider without a table is judged by the words in its name.

/// Providers whose resources exist only in the state, so that nothing is lost.
const NOTHING: &str = "archive cloudinit external helm http null random template terraform time tls";

/// The losses of a provider, each with the types that hold such data, without the provider's name before them.
type Losses = &'static [(&'static str, &'static str)];

const ROWS: &str = "every row in it is deleted";
const DATABASE: &str = "the database and what is stored in it are deleted";
const BUCKET: &str = "every object in the bucket is deleted";
const DISK: &str = "the data on the disk is deleted";
const MACHINE: &str = "the machine is deleted, and its local disks with it";
const FILES: &str = "every file in the file system is deleted";
const ADDRESS: &str = "the address is released, and may be given to somebody else";
const MESSAGES: &str = "messages that nobody has read are deleted";
const KEY: &str = "what the key encrypted can no longer be read";
const SECRET: &str = "the secret's value is deleted";
const IMAGES: &str = "every image in the registry is deleted";
const BACKUPS: &str = "the backups in it are deleted";
const ZONE: &str = "every record of the zone is deleted";
const LOGS: &str = "the logs in it are deleted";
const CLUSTER: &str = "the cluster is deleted with everything that runs in it";
const USERS: &str = "every user in it is deleted";

const PROVIDERS: [(&str, Losses); 8] = [
    (
        "aws",
        &[
            (BUCKET, "s3_bucket s3_directory_bucket"),
            ("the object is deleted", "s3_object s3_bucket_object"),
            (
                DATABASE,
                "db_instance rds_cluster rds_cluster_instance rds_global_cluster docdb_cluster \
                 neptune_cluster redshift_cluster redshiftserverless_namespace elasticache_cluster \
                 elasticache_replication_group elasticache_serverless_cache memorydb_cluster \
                 opensearch_domain elasticsearch_domain keyspaces_keyspace timestreamwrite_database \
                 dax_cluster",
            ),
            (ROWS, "dynamodb_table keyspaces_table timestreamwrite_table"),
            (DISK, "ebs_volume ebs_snapshot lightsail_disk"),
            (MACHINE, "instance lightsail_instance"),
            (
                FILES,
                "efs_file_system fsx_lustre_file_system fsx_ontap_file_system fsx_openzfs_file_system \
                 fsx_windows_file_system",
            ),
            (ADDRESS, "eip lb alb elb nat_gateway lightsail_static_ip"),
            (MESSAGES, "sqs_queue kinesis_stream msk_cluster mq_broker"),
            (KEY, "kms_key kms_external_key kms_replica_key"),
            (
                SECRET,
                "secretsmanager_secret secretsmanager_secret_version ssm_parameter",
            ),
            (IMAGES, "ecr_repository ecrpublic_repository"),
            (BACKUPS, "backup_vault glacier_vault"),
            (ZONE, "route53_zone"),
            (LOGS, "cloudwatch_log_group"),
            (CLUSTER, "eks_cluster ecs_cluster"),
            (USERS, "cognito_user_pool"),
        ],
    ),
    (
        "google",
        &[
            (BUCKET, "storage_bucket"),
            ("the object is deleted", "storage_bucket_object"),
            (
                DATABASE,
                "sql_database_instance sql_database spanner_instance spanner_database bigtable_instance \
                 alloydb_cluster redis_instance firestore_database memcache_instance",
            ),
            (ROWS, "bigquery_table bigquery_dataset bigtable_table"),
            (DISK, "compute_disk compute_region_disk compute_snapshot"),
            (MACHINE, "compute_instance"),
            (FILES, "filestore_instance"),
            (ADDRESS, "compute_address compute_global_address"),
            (MESSAGES, "pubsub_topic pubsub_subscription"),
            (KEY, "kms_crypto_key kms_crypto_key_version"),
            (SECRET, "secret_manager_secret secret_manager_secret_version"),
            (IMAGES, "artifact_registry_repository container_registry"),
            (ZONE, "dns_managed_zone"),
            (LOGS, "logging_project_bucket_config"),
            (CLUSTER, "container_cluster"),
            ("the project is deleted with everything in it", "project"),
        ],
    ),
    (
        "azurerm",
        &[
            ("everything in the resource group is deleted", "resource_group"),
            (
                BUCKET,
                "storage_account storage_container storage_data_lake_gen2_filesystem",
            ),
            ("the object is deleted", "storage_blob"),
            (
                DATABASE,
                "mssql_database mssql_server mssql_managed_instance postgresql_flexible_server \
                 postgresql_flexible_server_database postgresql_server mysql_flexible_server \
                 mysql_flexible_database mariadb_server cosmosdb_account redis_cache kusto_cluster \
                 kusto_database",
            ),
            (ROWS, "storage_table cosmosdb_sql_container cosmosdb_table"),
            (DISK, "managed_disk snapshot"),
            (
                MACHINE,
                "linux_virtual_machine windows_virtual_machine virtual_machine",
            ),
            (FILES, "storage_share netapp_volume"),
            (ADDRESS, "public_ip public_ip_prefix"),
            (
                MESSAGES,
                "servicebus_queue servicebus_topic storage_queue eventhub",
            ),
            (KEY, "key_vault key_vault_key"),
            (SECRET, "key_vault_secret key_vault_certificate"),
            (IMAGES, "container_registry"),
            (BACKUPS, "recovery_services_vault data_protection_backup_vault"),
            (ZONE, "dns_zone private_dns_zone"),
            (LOGS, "log_analytics_workspace"),
            (CLUSTER, "kubernetes_cluster"),
        ],
    ),
    (
        "alicloud",
        &[
            (BUCKET, "oss_bucket"),
            ("the object is deleted", "oss_bucket_object"),
            (
                DATABASE,
                "db_instance db_database polardb_cluster mongodb_instance mongodb_sharding_instance \
                 kvstore_instance elasticsearch_instance hbase_instance",
            ),
            (ROWS, "ots_table ots_instance"),
            (DISK, "ecs_disk disk ecs_snapshot"),
            (MACHINE, "instance"),
            (FILES, "nas_file_system"),
            (ADDRESS, "eip eip_address slb_load_balancer alb_load_balancer"),
            (MESSAGES, "message_service_queue mns_queue alikafka_instance"),
            (KEY, "kms_key"),
            (SECRET, "kms_secret"),
            (IMAGES, "cr_repo cr_ee_repo cr_ee_instance"),
            (ZONE, "alidns_domain dns_domain pvtz_zone"),
            (LOGS, "log_project log_store"),
            (
                CLUSTER,
                "cs_managed_kubernetes cs_kubernetes cs_serverless_kubernetes",
            ),
        ],
    ),
    (
        "digitalocean",
        &[
            (BUCKET, "spaces_bucket"),
            (DATABASE, "database_cluster database_db"),
            (DISK, "volume volume_snapshot"),
            (MACHINE, "droplet"),
            (ADDRESS, "reserved_ip floating_ip loadbalancer"),
            (IMAGES, "container_registry"),
            (ZONE, "domain"),
            (CLUSTER, "kubernetes_cluster"),
        ],
    ),
    (
        "kubernetes",
        &[
            (
                "the volume's data may be deleted with the claim",
                "persistent_volume_claim persistent_volume_claim_v1",
            ),
            ("everything in the namespace is deleted", "namespace namespace_v1"),
        ],
    ),
    (
        "vault",
        &[(SECRET, "mount kv_secret kv_secret_v2 generic_secret")],
    ),
    ("local", &[("the file is deleted", "file sensitive_file")]),
];

/// Words in the name of a type that indicate data or an address, for providers without a table.
const WORDS: &str = "address backup blob bucket cache cluster database db disk domain filesystem image ip key queue \
     registry secret snapshot storage table volume zone";

/// Describes the loss when a resource of this type is deleted; `None` if nothing is lost.
pub(super) fn of_type(kind: &str) -> Option<&'static str> {
    let (provider, name) = kind.split_once('_').unwrap_or((kind, ""));
    let has = |words: &str, wanted: &str| words.split(' ').any(|word| word == wanted);
    if has(NOTHING, provider) {
        return None;
    }
    let table = PROVIDERS.iter().find(|(name, _)| *name == provider);
    match table {
        Some((_, losses)) => losses
            .iter()
            .find(|(_, kinds)| has(kinds, name))
            .map(|(reason, _)| *reason),
        None => {
            let mut words = name.split('_');
            words
                .any(|word| has(WORDS, word))
                .then_some("its name says that it holds data or an address, which is deleted with it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_lost_only_with_what_holds_some() {
        for (kind, reason) in [
            ("aws_s3_bucket", Some(BUCKET)),
            ("aws_s3_bucket_policy", None),
            ("aws_iam_role", None),
            ("google_sql_database_instance", Some(DATABASE)),
            ("azurerm_public_ip", Some(ADDRESS)),
            ("terraform_data", None),
            ("null_resource", None),
            ("random_password", None),
            ("time_sleep", None),
            ("tls_private_key", None),
            ("local_file", Some("the file is deleted")),
            ("acme_firewall_rule", None),
        ] {
            assert_eq!(of_type(kind), reason, "{kind}");
        }
        assert!(of_type("acme_postgres_database").is_some());
    }

    #[test]
    fn a_type_stands_in_the_table_of_its_provider_once() {
        for (provider, losses) in PROVIDERS {
            let mut kinds: Vec<_> = losses.iter().flat_map(|(_, kinds)| kinds.split(' ')).collect();
            let all = kinds.len();
            kinds.sort();
            kinds.dedup();
            assert_eq!(kinds.len(), all, "{provider}");
        }
    }
}
