#!/usr/bin/env bash
# Tries the provisioning on a fresh Debian of this machine's own release, made with debootstrap from
# the mirror of this machine's apt sources. It tries the Vagrantfile's provisioning, the Containerfile
# step by step, what an editor does with a class's devcontainer.json, the commands of docs/anywhere.md for a
# course server with two of its users, a release's wheels, and the steps of examples/ci/workflow.yml, each in
# a root of its own. In each root a user without any rights then runs the virtual engine. It takes
# some twenty minutes and 8 GB, and is not part of scripts/test.sh. The root is a chroot with process and mount
# namespaces, not a hypervisor or a container engine. So boxes, images, shared folders and port
# forwarding are not tried. A class has two cores and a cgroup of 4 GB.
# Usage, as root: scripts/provision-check.sh [--kernels FOLDER] [--keep FOLDER]
#                 [vagrant|container|classroom|course|wheel|workflow]...
#   --kernels FOLDER  lend this cache of kernels, not ~/.cache/outcast/kernels. No user of a chroot can
#                     make a user namespace, in which to build one
#   --keep FOLDER     work in this folder, keep the roots, and reuse the base root if there is one
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$repo/scripts/lib/debian.sh"
kernels=${XDG_CACHE_HOME:-$HOME/.cache}/outcast/kernels work="" parts=() group="" shm_size=2g
# Container engines' default for /dev/shm. No program can run from it, so the guest's memory is not there.
engines_shm=64m,noexec,nosuid,nodev
experiment=(run configs/fig3c.yaml --engine virtual --set duration=100ms
    --set 'analysis.windows=[100ms]')

say() { printf 'provision-check: %s (%s s)\n' "$*" "$SECONDS"; }
die() { printf 'provision-check: error: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --kernels) kernels=$(realpath "$2") && shift 2 ;;
        --keep) work=$(realpath "$2") && shift 2 ;;
        vagrant | container | classroom | course | wheel | workflow) parts+=("$1") && shift ;;
        *) sed -n 's/^# Usage, as root: /usage: /p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(vagrant container classroom course wheel workflow)
[ -d "$kernels" ] || die "$kernels is missing: scripts/guest/build"
require_programs debootstrap unshare:util-linux setpriv:util-linux tar git
# The fresh root's Open vSwitch would take the ports of this machine's Open vSwitch for left-overs.
[ ! -e /sys/module/openvswitch ] || die "the openvswitch module is loaded: try another machine"

kept=$work
[ -n "$work" ] || work=$(mktemp -d /var/tmp/outcast-provision.XXXXXX)
end_all() {
    [ -z "$group" ] || rmdir "$group"
    [ -n "$kept" ] || rm -rf --one-file-system "$work"
}
trap end_all EXIT
mkdir -p "$work/packages"
base=$work/base

lend_kernels() {
    mkdir -p "$1/.cache/outcast"
    cp -a "$kernels" "$1/.cache/outcast/kernels"
    chown -R --reference="$1" "$1/.cache"
}

# Checks that captures and counters agree, that the virtual engine made the run, and its report.
check_run() {
    grep -q '"trusted": true' "$1/summary.json" || die "captures and counters of the run do not agree"
    grep -q '"engine": "virtual"' "$1/manifest.json" || die "the run was not virtual"
    [ -s "$1/report.html" ] || die "the run left no report"
}

check_vagrant() {
    local root=$work/vagrant home=/home/vagrant/outcast script
    if command -v ruby >/dev/null; then
        ruby -c "$repo/Vagrantfile" >/dev/null || die "Vagrantfile: syntax"
    else
        say "Vagrantfile: syntax not checked, there is no ruby"
    fi
    script=$(sed -n 's/.*provision "shell", inline: "\(.*\)"$/\1/p' "$repo/Vagrantfile")
    [ -n "$script" ] || die "Vagrantfile: no provisioning script found"
    fresh_root "$base" "$root" "$work/packages"
    inside "$root" root / useradd --create-home --shell /bin/bash vagrant
    copy_checkout "$root$home"
    inside "$root" root / chown -R vagrant:vagrant "$home"
    logged "$work/vagrant-provision.log" inside "$root" root / bash -euc "$script"
    keep_packages "$root" "$work/packages"
    say "Vagrantfile: provisioned by: $script"
    logged "$work/vagrant-again.log" inside "$root" root / bash -euc "$script"
    say "Vagrantfile: provisioned once more"
    lend_kernels "$root/home/vagrant"
    logged "$work/vagrant-run.log" inside "$root" vagrant "$home" \
        .venv/bin/outcast "${experiment[@]}" -o results/provision
    check_run "$root$home/results/provision"
    say "Vagrantfile: the virtual engine ran as the user vagrant"
}

# Does the Containerfile's steps in their order. A kind of step that is not known here ends the check.
check_container() {
    local root=$work/container user=root folder=/ step words entry=() number=0
    local shm_size=$engines_shm
    fresh_root "$base" "$root" "$work/packages"
    while IFS= read -r step; do
        number=$((number + 1))
        case $step in
            'FROM debian:'*) ;;
            'RUN '*)
                if [[ $step == *'scripts/guest/build'* ]]; then
                    lend_kernels "$root/home/outcast"
                fi
                logged "$work/container-$number.log" inside "$root" "$user" "$folder" \
                    sh -euc "${step#RUN }"
                ;;
            'COPY --chown='*)
                read -r -a words <<<"$step"
                [ "${words[2]}" = . ] || die "Containerfile: only the whole context is known: $step"
                copy_checkout "$root${words[3]}"
                inside "$root" root / chown -R "${words[1]#--chown=}:" "${words[3]}"
                ;;
            'ENV '*) echo "${step#ENV }" >>"$root/etc/environment" ;;
            'USER '*) user=${step#USER } ;;
            'WORKDIR '*) folder=${step#WORKDIR } ;;
            'ENTRYPOINT '*) mapfile -t entry < <(python3 -c \
                'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "${step#ENTRYPOINT }") ;;
            'CMD '*) ;;
            *) die "Containerfile: a step that this check does not know: $step" ;;
        esac
        say "Containerfile: $step"
    done < <(sed -e '/^#/d' -e '/^$/d' "$repo/Containerfile" | sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta')
    [ "$user" != root ] || die "Containerfile: it runs as root"
    logged "$work/container-run.log" inside "$root" "$user" "$folder" \
        "${entry[@]}" "${experiment[@]}" -o results/provision
    check_run "$root$folder/results/provision"
    say "Containerfile: the virtual engine ran as the user $user, without capabilities"
}

# in_class COMMAND...: runs a command as the class's user, in its folder, with its limits.
in_class() (
    echo "$BASHPID" >"$group/cgroup.procs"
    shm_size=$engines_shm inside "$work/classroom" "$class_user" "$class_folder" \
        env "PATH=$class_path:/usr/local/bin:/usr/bin:/bin" taskset -c 0,1 "$@"
)

# Does with the class's devcontainer.json what an editor does. Debian's own Python stands for the image's.
check_classroom() {
    local root=$work/classroom class_folder=/workspaces/class described began
    rm -rf --one-file-system "$work/class"
    logged "$work/classroom.log" "$repo/scripts/classroom.sh" "$work/class"
    say "classroom: $(tail -n 1 "$work/classroom.log")"
    mapfile -t described < <(sed '/^ *\/\//d' "$work/class/.devcontainer/devcontainer.json" | python3 -c '
import json, sys

described = json.load(sys.stdin)
print(described["image"], described["remoteUser"], described["onCreateCommand"], sep="\n")
print(described["remoteEnv"]["PATH"].partition(":")[0])')
    local class_user=${described[1]} class_path=${described[3]}
    [[ ${described[0]} == *-"$(own_suite)" ]] || die "classroom: its image is another Debian: ${described[0]}"
    fresh_root "$base" "$root" "$work/packages"
    logged "$work/classroom-python.log" inside "$root" root / sh -euc "apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv
        useradd --create-home --shell /bin/bash $class_user"
    keep_packages "$root" "$work/packages"
    mkdir -p "$root$class_folder"
    cp -R "$work/class/." "$root$class_folder"
    inside "$root" root / chown -R "$class_user:" "$class_folder"
    group=$(memory_group outcast-provision 4G) || die "this machine gives no memory cgroup"
    began=$SECONDS
    logged "$work/classroom-create.log" in_class sh -c "${described[2]}"
    say "classroom: made ready in $((SECONDS - began)) s by: ${described[2]}"
    began=$SECONDS
    logged "$work/classroom-run.log" in_class outcast run configs/fig3c.yaml -o results/fig3c
    say "classroom: the first run of configs/fig3c.yaml took $((SECONDS - began)) s"
    check_run "$root$class_folder/results/fig3c"
    rmdir "$group" && group=""
}

# Does the commands for a course server as docs/anywhere.md has them. Then two users work at a time: each
# makes a run, and reads it in a Jupyter kernel as a notebook of JupyterHub's does.
check_course() {
    local root=$work/course student home commands running=()
    rm -rf --one-file-system "$work/class"
    logged "$work/course-wheels.log" "$repo/scripts/classroom.sh" "$work/class"
    commands=$(sed -n '/^## A course server/,/^FOLDER is/s/^sudo //p' "$repo/docs/anywhere.md")
    [ -n "$commands" ] || die "docs/anywhere.md: no commands found for a course server"
    fresh_root "$base" "$root" "$work/packages"
    logged "$work/course-python.log" inside "$root" root / sh -euc "apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv
        for student in ana ben; do useradd --create-home --shell /bin/bash \$student; done"
    keep_packages "$root" "$work/packages"
    cp -R "$work/class/wheels" "$root/root/wheels"
    logged "$work/course-install.log" inside "$root" root /root bash -euc "${commands//FOLDER/wheels}"
    say "course: installed once for all, $(du -sm "$root/opt/outcast" | cut -f1) MB"
    cat >"$root/usr/local/bin/in-a-notebook" <<'PYTHON'
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="outcast")
code = "import outcast; print(outcast.open_run('mine').trusted)"
reply = client.execute_interactive(code, timeout=300)
manager.shutdown_kernel()
sys.exit(reply["content"]["status"] != "ok")
PYTHON
    for student in ana ben; do
        home=/home/$student
        logged "$work/course-$student.log" inside "$root" "$student" "$home" bash -euc \
            "outcast ${experiment[*]@Q} -o mine && /opt/outcast/bin/python /usr/local/bin/in-a-notebook" &
        running+=($!)
    done
    for student in "${running[@]}"; do wait "$student" || die "course: a user's run failed"; done
    for student in ana ben; do
        check_run "$root/home/$student/mine"
        grep -qx True "$work/course-$student.log" || die "course: $student's notebook read no run"
        du -sk "$root/home/$student/.cache/outcast"
    done
    diff -r "$root"/home/{ana,ben}/mine/captures || die "course: two users got other packets"
    say "course: two users made the same run at a time, and read it in a notebook's kernel"
}

# Installs the wheels of a release as docs/install.md says, in a Debian with nothing but Python.
check_wheel() {
    local root=$work/wheel home=/home/user
    logged "$work/wheel-release.log" "$repo/scripts/release.sh" "$work/dist"
    fresh_root "$base" "$root" "$work/packages"
    logged "$work/wheel-python.log" inside "$root" root / sh -euc "apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv
        useradd --create-home --shell /bin/bash user"
    keep_packages "$root" "$work/packages"
    cp -R "$work/dist" "$root$home/dist"
    logged "$work/wheel-install.log" inside "$root" user "$home" sh -euc "python3 -m venv venv
        venv/bin/pip install dist/outcast_testbed-*.whl dist/outcast_guest-*.whl"
    say "wheel: installed"
    logged "$work/wheel-doctor.log" inside "$root" user "$home" venv/bin/outcast doctor
    logged "$work/wheel-run.log" inside "$root" user "$home" venv/bin/outcast "${experiment[@]}" -o wheel
    check_run "$root$home/wheel"
    say "wheel: the virtual engine ran"
}

# Does the steps of the workflow for hosted CI: its commands literally, and what stands for the service's actions.
# Only its sudo has rights. The example's test then passes, and a test that fails leaves its evidence.
check_workflow() {
    local root=$work/workflow folder=/home/runner/work path=/home/runner/python/bin step number=0
    local shm_size=$engines_shm
    [ -e "$work/dist/outcast.cdx.json" ] || logged "$work/workflow-wheel.log" "$repo/scripts/release.sh" "$work/dist"
    fresh_root "$base" "$root" "$work/packages"
    cp -R "$work/dist" "$root/release"
    logged "$work/workflow-python.log" inside "$root" root / sh -euc "apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv
        useradd --create-home --shell /bin/bash runner"
    while IFS= read -r step; do
        number=$((number + 1))
        case $step in
            'uses actions/checkout@'*)
                mkdir -p "$root$folder" && cp "$repo"/examples/ci/python/*.py "$root$folder"
                inside "$root" root / chown -R runner: "$folder"
                ;;
            'uses actions/setup-python@'*) inside "$root" runner / python3 -m venv "${path%/bin}" ;;
            'uses actions/upload-artifact@'*) ;;
            'run '*) logged "$work/workflow-$number.log" inside "$root" runner "$folder" \
                env "PATH=$path:/usr/bin:/bin" RELEASE=/release bash -ec "${step#run }" ;;
            *) die "workflow: a step that this check does not know: $step" ;;
        esac
        say "workflow: $step"
    done < <("$repo/.venv/bin/python" -c '
import sys, yaml
(job,) = yaml.safe_load(open(sys.argv[1]))["jobs"].values()
for step in job["steps"]:
    print(*next((kind, step[kind]) for kind in ("uses", "run") if kind in step))' "$repo/examples/ci/workflow.yml")
    keep_packages "$root" "$work/packages"
    sed -i 's/status == 0/status == 1/' "$root$folder/test_transfer.py"
    ! inside "$root" runner "$folder" env "PATH=$path:/usr/bin:/bin" pytest >"$work/workflow-failing.log" 2>&1 \
        || die "workflow: a test that has to fail has passed"
    compgen -G "$root$folder/outcast-failures/*/1.zip" >/dev/null || die "workflow: a failing test left no evidence"
    say "workflow: its steps passed as the user runner, without rights"
}

[ -x "$base/usr/bin/apt-get" ] \
    || make_base "$(own_suite)" minbase "$base" "$work/packages" "$work/debootstrap.log"
for part in "${parts[@]}"; do
    "check_$part"
done
say "all passed: ${parts[*]}"
