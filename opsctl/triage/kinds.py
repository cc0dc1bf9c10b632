"""Which runbook is for which kind of incident (docs/diagnosis.md), and for which there is none."""

from __future__ import annotations

from typing import Final

RUNBOOKS: Final = (
    "service-down",
    "crash-loop",
    "slow-load",
    "gpu-orphans",
    "hung",
    "acceptance-collapsed",
    "garbage-output",
    "out-of-memory",
    "host-rebooted",
    "bad-patch-set",
    "disk-full",
    "planned-restart",
)

# `service-down` is for a crash that fits no other: in a loop it is `crash-loop` (`rules.crashed`).
_FOR: Final[dict[str, str]] = {
    "out-of-memory": "host_oom_killed cuda_oom kv_pool_exhausted shm_exhausted",
    "disk-full": "disk_full",
    "gpu-orphans": "orphan_processes port_in_use stop_hang",
    "bad-patch-set": "python_error_after_patch patch_not_active tensor_size_mismatch ssh_umask",
    "garbage-output": "nan_logits graph_divergence degenerate_output implausible_acceptance",
    "acceptance-collapsed": "zero_acceptance acceptance_collapse acceptance_decay "
    "throughput_collapse",
    "hung": "health_hang false_healthy watchdog_timeout nccl_timeout nccl_hang",
    "slow-load": "startup_timeout",
    "crash-loop": "restart_loop",
    "service-down": "python_error unknown child_died segfault detokenizer_crash warmup_failure "
    "illegal_memory_access device_side_assert graph_capture_failure nccl_error peer_rank_died "
    "kv_pool_leak bad_cli_args spec_config_error jit_compile_failure gpu_xid_software",
}
# No runbook can do it: a person must reset hardware, fetch or install something, or nothing is
# wrong with the service at all. The kind's own remedy says what.
_NONE: Final[dict[str, str]] = {
    "the machine needs hands": "gpu_lost gpu_ecc gpu_hang driver_mismatch",
    "files are missing or broken": "weights_corrupt model_path_missing",
    "the environment must be installed anew": "tokenizer_error kernel_undefined_symbol "
    "missing_shared_library flashinfer_version_mismatch no_kernel_image import_error "
    "model_unsupported",
    "the way to the host is at fault": "ssh_banner_timeout ssh_proxy_failure ssh_host_key_prompt "
    "ssh_host_key_changed ssh_too_many_keys ssh_auth_failed ssh_sftp_disabled "
    "ssh_non_posix_shell ssh_sudo_password ssh_dead_connection_hang ssh_controlpath_too_long "
    "ssh_clock_skew ssh_unreachable",
    "nothing is to be done": "false_unhealthy listening_not_ready exit_code_lies retract_warning "
    "journal_gap client_error request_payload benign_warning ready decode_stats load_progress",
}

BY_KIND: Final[dict[str, str | None]] = {
    **{kind: book for book, kinds in _FOR.items() for kind in kinds.split()},
    **{kind: None for kinds in _NONE.values() for kind in kinds.split()},
}
WHY_NONE: Final[dict[str, str]] = {
    kind: why for why, kinds in _NONE.items() for kind in kinds.split()
}


def runbook(kind: str) -> str | None:
    """The runbook for an incident of that kind; None where no runbook helps.

    Raises:
        KeyError: there is no such kind.
    """
    return BY_KIND[kind]
