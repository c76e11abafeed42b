#include "device/cpu/cpu.h"

rabbet_status_t rabbet_cpu_offer_same(rabbet_proposal_t* proposal,
                                      uint32_t formats, const char* tactic_name,
                                      int32_t in_place) {
  const rabbet_format_t all[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                 rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  rabbet_dtype_t network =
      proposal->propose->group->values[proposal->node->inputs[0]].dtype;
  int count = rabbet_compute_types(proposal->propose, network, types);
  for (int t = 0; t < count; ++t) {
    for (int f = 0; f < 3; ++f) {
      if (!(formats >> f & 1)) continue;
      rabbet_proposal_set_input(proposal, 0, types[t], all[f]);
      rabbet_proposal_set_output(proposal, types[t], all[f]);
      RABBET_RETURN_IF_ERROR(
          rabbet_proposal_offer(proposal, tactic_name, in_place));
    }
  }
  return rabbet_ok();
}
