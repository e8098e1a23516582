//! The data that is lost when a Terraform resource is deleted: a table of the types that hold data or an
//! address, by provider. A type of a provider without a table is judged by the words in its name.

/// Providers whose resources exist only in the state, so that nothing is lost.
const NOTHING: [&str; 11] = [
    "archive",
    "cloudinit",
    "external",
    "helm",
    "http",
    "null",
    "random",
    "template",
    "terraform",
    "time",
    "tls",
];

/// The types of a provider that hold data, with a description of the loss.
type Losses = &'static [(&'static str, &'static [&'static str])];

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
            (BUCKET, &["aws_s3_bucket", "aws_s3_directory_bucket"]),
            (
                "the object is deleted",
                &["aws_s3_object", "aws_s3_bucket_object"],
            ),
            (
                DATABASE,
                &[
                    "aws_db_instance",
                    "aws_rds_cluster",
                    "aws_rds_cluster_instance",
                    "aws_rds_global_cluster",
                    "aws_docdb_cluster",
                    "aws_neptune_cluster",
                    "aws_redshift_cluster",
                    "aws_redshiftserverless_namespace",
                    "aws_elasticache_cluster",
                    "aws_elasticache_replication_group",
                    "aws_elasticache_serverless_cache",
                    "aws_memorydb_cluster",
                    "aws_opensearch_domain",
                    "aws_elasticsearch_domain",
                    "aws_keyspaces_keyspace",
                    "aws_timestreamwrite_database",
                    "aws_dax_cluster",
                ],
            ),
            (
                ROWS,
                &[
                    "aws_dynamodb_table",
                    "aws_keyspaces_table",
                    "aws_timestreamwrite_table",
                ],
            ),
            (
                DISK,
                &["aws_ebs_volume", "aws_ebs_snapshot", "aws_lightsail_disk"],
            ),
            (MACHINE, &["aws_instance", "aws_lightsail_instance"]),
            (
                FILES,
                &[
                    "aws_efs_file_system",
                    "aws_fsx_lustre_file_system",
                    "aws_fsx_ontap_file_system",
                    "aws_fsx_openzfs_file_system",
                    "aws_fsx_windows_file_system",
                ],
            ),
            (
                ADDRESS,
                &[
                    "aws_eip",
                    "aws_lb",
                    "aws_alb",
                    "aws_elb",
                    "aws_nat_gateway",
                    "aws_lightsail_static_ip",
                ],
            ),
            (
                MESSAGES,
                &[
                    "aws_sqs_queue",
                    "aws_kinesis_stream",
                    "aws_msk_cluster",
                    "aws_mq_broker",
                ],
            ),
            (
                KEY,
                &["aws_kms_key", "aws_kms_external_key", "aws_kms_replica_key"],
            ),
            (
                SECRET,
                &[
                    "aws_secretsmanager_secret",
                    "aws_secretsmanager_secret_version",
                    "aws_ssm_parameter",
                ],
            ),
            (IMAGES, &["aws_ecr_repository", "aws_ecrpublic_repository"]),
            (BACKUPS, &["aws_backup_vault", "aws_glacier_vault"]),
            (ZONE, &["aws_route53_zone"]),
            (LOGS, &["aws_cloudwatch_log_group"]),
            (CLUSTER, &["aws_eks_cluster", "aws_ecs_cluster"]),
            (USERS, &["aws_cognito_user_pool"]),
        ],
    ),
    (
        "google",
        &[
            (BUCKET, &["google_storage_bucket"]),
            ("the object is deleted", &["google_storage_bucket_object"]),
            (
                DATABASE,
                &[
                    "google_sql_database_instance",
                    "google_sql_database",
                    "google_spanner_instance",
                    "google_spanner_database",
                    "google_bigtable_instance",
                    "google_alloydb_cluster",
                    "google_redis_instance",
                    "google_firestore_database",
                    "google_memcache_instance",
                ],
            ),
            (
                ROWS,
                &[
                    "google_bigquery_table",
                    "google_bigquery_dataset",
                    "google_bigtable_table",
                ],
            ),
            (
                DISK,
                &[
                    "google_compute_disk",
                    "google_compute_region_disk",
                    "google_compute_snapshot",
                ],
            ),
            (MACHINE, &["google_compute_instance"]),
            (FILES, &["google_filestore_instance"]),
            (
                ADDRESS,
                &["google_compute_address", "google_compute_global_address"],
            ),
            (MESSAGES, &["google_pubsub_topic", "google_pubsub_subscription"]),
            (KEY, &["google_kms_crypto_key", "google_kms_crypto_key_version"]),
            (
                SECRET,
                &[
                    "google_secret_manager_secret",
                    "google_secret_manager_secret_version",
                ],
            ),
            (
                IMAGES,
                &["google_artifact_registry_repository", "google_container_registry"],
            ),
            (ZONE, &["google_dns_managed_zone"]),
            (LOGS, &["google_logging_project_bucket_config"]),
            (CLUSTER, &["google_container_cluster"]),
            (
                "the project is deleted with everything in it",
                &["google_project"],
            ),
        ],
    ),
    (
        "azurerm",
        &[
            (
                "everything in the resource group is deleted",
                &["azurerm_resource_group"],
            ),
            (
                BUCKET,
                &[
                    "azurerm_storage_account",
                    "azurerm_storage_container",
                    "azurerm_storage_data_lake_gen2_filesystem",
                ],
            ),
            ("the object is deleted", &["azurerm_storage_blob"]),
            (
                DATABASE,
                &[
                    "azurerm_mssql_database",
                    "azurerm_mssql_server",
                    "azurerm_mssql_managed_instance",
                    "azurerm_postgresql_flexible_server",
                    "azurerm_postgresql_flexible_server_database",
                    "azurerm_postgresql_server",
                    "azurerm_mysql_flexible_server",
                    "azurerm_mysql_flexible_database",
                    "azurerm_mariadb_server",
                    "azurerm_cosmosdb_account",
                    "azurerm_redis_cache",
                    "azurerm_kusto_cluster",
                    "azurerm_kusto_database",
                ],
            ),
            (
                ROWS,
                &[
                    "azurerm_storage_table",
                    "azurerm_cosmosdb_sql_container",
                    "azurerm_cosmosdb_table",
                ],
            ),
            (DISK, &["azurerm_managed_disk", "azurerm_snapshot"]),
            (
                MACHINE,
                &[
                    "azurerm_linux_virtual_machine",
                    "azurerm_windows_virtual_machine",
                    "azurerm_virtual_machine",
                ],
            ),
            (FILES, &["azurerm_storage_share", "azurerm_netapp_volume"]),
            (ADDRESS, &["azurerm_public_ip", "azurerm_public_ip_prefix"]),
            (
                MESSAGES,
                &[
                    "azurerm_servicebus_queue",
                    "azurerm_servicebus_topic",
                    "azurerm_storage_queue",
                    "azurerm_eventhub",
                ],
            ),
            (KEY, &["azurerm_key_vault", "azurerm_key_vault_key"]),
            (
                SECRET,
                &["azurerm_key_vault_secret", "azurerm_key_vault_certificate"],
            ),
            (IMAGES, &["azurerm_container_registry"]),
            (
                BACKUPS,
                &[
                    "azurerm_recovery_services_vault",
                    "azurerm_data_protection_backup_vault",
                ],
            ),
            (ZONE, &["azurerm_dns_zone", "azurerm_private_dns_zone"]),
            (LOGS, &["azurerm_log_analytics_workspace"]),
            (CLUSTER, &["azurerm_kubernetes_cluster"]),
        ],
    ),
    (
        "alicloud",
        &[
            (BUCKET, &["alicloud_oss_bucket"]),
            ("the object is deleted", &["alicloud_oss_bucket_object"]),
            (
                DATABASE,
                &[
                    "alicloud_db_instance",
                    "alicloud_db_database",
                    "alicloud_polardb_cluster",
                    "alicloud_mongodb_instance",
                    "alicloud_mongodb_sharding_instance",
                    "alicloud_kvstore_instance",
                    "alicloud_elasticsearch_instance",
                    "alicloud_hbase_instance",
                ],
            ),
            (ROWS, &["alicloud_ots_table", "alicloud_ots_instance"]),
            (
                DISK,
                &["alicloud_ecs_disk", "alicloud_disk", "alicloud_ecs_snapshot"],
            ),
            (MACHINE, &["alicloud_instance"]),
            (FILES, &["alicloud_nas_file_system"]),
            (
                ADDRESS,
                &[
                    "alicloud_eip",
                    "alicloud_eip_address",
                    "alicloud_slb_load_balancer",
                    "alicloud_alb_load_balancer",
                ],
            ),
            (
                MESSAGES,
                &[
                    "alicloud_message_service_queue",
                    "alicloud_mns_queue",
                    "alicloud_alikafka_instance",
                ],
            ),
            (KEY, &["alicloud_kms_key"]),
            (SECRET, &["alicloud_kms_secret"]),
            (
                IMAGES,
                &[
                    "alicloud_cr_repo",
                    "alicloud_cr_ee_repo",
                    "alicloud_cr_ee_instance",
                ],
            ),
            (
                ZONE,
                &[
                    "alicloud_alidns_domain",
                    "alicloud_dns_domain",
                    "alicloud_pvtz_zone",
                ],
            ),
            (LOGS, &["alicloud_log_project", "alicloud_log_store"]),
            (
                CLUSTER,
                &[
                    "alicloud_cs_managed_kubernetes",
                    "alicloud_cs_kubernetes",
                    "alicloud_cs_serverless_kubernetes",
                ],
            ),
        ],
    ),
    (
        "digitalocean",
        &[
            (BUCKET, &["digitalocean_spaces_bucket"]),
            (
                DATABASE,
                &["digitalocean_database_cluster", "digitalocean_database_db"],
            ),
            (DISK, &["digitalocean_volume", "digitalocean_volume_snapshot"]),
            (MACHINE, &["digitalocean_droplet"]),
            (
                ADDRESS,
                &[
                    "digitalocean_reserved_ip",
                    "digitalocean_floating_ip",
                    "digitalocean_loadbalancer",
                ],
            ),
            (IMAGES, &["digitalocean_container_registry"]),
            (ZONE, &["digitalocean_domain"]),
            (CLUSTER, &["digitalocean_kubernetes_cluster"]),
        ],
    ),
    (
        "kubernetes",
        &[
            (
                "the volume's data may be deleted with the claim",
                &[
                    "kubernetes_persistent_volume_claim",
                    "kubernetes_persistent_volume_claim_v1",
                ],
            ),
            (
                "everything in the namespace is deleted",
                &["kubernetes_namespace", "kubernetes_namespace_v1"],
            ),
        ],
    ),
    (
        "vault",
        &[(
            SECRET,
            &[
                "vault_mount",
                "vault_kv_secret",
                "vault_kv_secret_v2",
                "vault_generic_secret",
            ],
        )],
    ),
    (
        "local",
        &[("the file is deleted", &["local_file", "local_sensitive_file"])],
    ),
];

/// Words in the name of a type that indicate data or an address, for providers without a table.
const WORDS: [&str; 22] = [
    "address",
    "backup",
    "blob",
    "bucket",
    "cache",
    "cluster",
    "database",
    "db",
    "disk",
    "domain",
    "filesystem",
    "image",
    "ip",
    "key",
    "queue",
    "registry",
    "secret",
    "snapshot",
    "storage",
    "table",
    "volume",
    "zone",
];

/// Describes the loss when a resource of this type is deleted; `None` if nothing is lost.
pub(super) fn of_type(kind: &str) -> Option<&'static str> {
    let provider = kind.split('_').next().unwrap_or_default();
    if NOTHING.contains(&provider) {
        return None;
    }
    let table = PROVIDERS.iter().find(|(name, _)| *name == provider);
    match table {
        Some((_, losses)) => losses
            .iter()
            .find(|(_, kinds)| kinds.contains(&kind))
            .map(|(reason, _)| *reason),
        None => {
            let mut words = kind.split('_').skip(1);
            words
                .any(|word| WORDS.contains(&word))
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
            let mut kinds: Vec<_> = losses.iter().flat_map(|(_, kinds)| *kinds).collect();
            assert!(
                kinds.iter().all(|kind| kind.starts_with(&format!("{provider}_"))),
                "{provider}"
            );
            let all = kinds.len();
            kinds.sort();
            kinds.dedup();
            assert_eq!(kinds.len(), all, "{provider}");
        }
    }
}
