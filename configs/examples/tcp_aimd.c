// SPDX-License-Identifier: GPL-2.0
/*
 * AIMD with a decrease of one's own: Reno, but after a loss the window becomes `keep_percent` of
 * what it was, and not half. It is short on purpose: copy it and change it.
 *
 * The kernel calls `ssthresh` at a loss, `cong_avoid` at each acknowledgement outside of recovery,
 * and `undo_cwnd` when a loss turns out to have been none (struct tcp_congestion_ops in net/tcp.h).
 */

#include <linux/module.h>
#include <net/tcp.h>

static unsigned int keep_percent __read_mostly = 50;
module_param(keep_percent, uint, 0444);
MODULE_PARM_DESC(keep_percent, "what is left of the window after a loss, in percent");

static u32 aimd_ssthresh(struct sock *sk)
{
	u32 left = tcp_snd_cwnd(tcp_sk(sk)) * keep_percent / 100;

	return max(left, 2U);
}

static struct tcp_congestion_ops aimd __read_mostly = {
	.ssthresh	= aimd_ssthresh,
	.cong_avoid	= tcp_reno_cong_avoid,
	.undo_cwnd	= tcp_reno_undo_cwnd,
	.owner		= THIS_MODULE,
	.name		= "aimd",
};

static int __init aimd_register(void)
{
	/* A parameter that makes no sense is refused here: the run then ends with this line. */
	if (keep_percent < 1 || keep_percent > 99) {
		pr_err("tcp_aimd: keep_percent is %u; allowed is 1 to 99\n", keep_percent);
		return -EINVAL;
	}
	return tcp_register_congestion_control(&aimd);
}

static void __exit aimd_unregister(void)
{
	tcp_unregister_congestion_control(&aimd);
}

module_init(aimd_register);
module_exit(aimd_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("AIMD with a decrease of one's own");
