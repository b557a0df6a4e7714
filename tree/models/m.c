const model_desc keel_model_m = {0};
